#include "core/order/message_format.hpp"

#include <gtest/gtest.h>

#include "core/base/error.hpp"
#include "core/order/order_json.hpp"
#include "core/order/problems.hpp"

namespace pipewright {
namespace message_format_test {

Order order_with(const std::string& messages) {
  const std::string text = R"({"schema": "pipewright.order/1",
      "ranks": [["0F0", "0F1", "0B0", "0B1"], ["1F0", "1B0", "1F1", "1B1"]],
      "messages": )" + messages +
                           "}";
  return read_order_json(JsonCursor(parse_json(text, "order.json"), "order.json"));
}

std::vector<std::string> problems(const std::string& messages) {
  return problems_of(order_with(messages));
}

TEST(MessageFormat, EndsThatAgreeAreNoProblem) {
  EXPECT_TRUE(problems(R"([{"end": "0SEND_F", "shape": [4, 8], "dtype": "bfloat16"},
                           {"end": "1RECV_F", "shape": [4, 8], "dtype": "bfloat16"}])")
                  .empty());
}

TEST(MessageFormat, AnEndThatIsNotDescribedIsNoProblem) {
  EXPECT_TRUE(problems(R"([{"end": "0SEND_F", "shape": [4, 8], "dtype": "bfloat16"},
                           {"end": "1SEND_B", "shape": [2, 8], "dtype": "float32"}])")
                  .empty());
}

TEST(MessageFormat, ADifferentShapeIsNamedAtBothEnds) {
  EXPECT_EQ(
      problems(R"([{"end": "0SEND_F", "shape": [4, 8], "dtype": "float32"},
                         {"end": "1RECV_F", "shape": [2, 16], "dtype": "float32"}])"),
      std::vector<std::string>{"0SEND_F0 sends 4x8 float32, but 1RECV_F0 takes 2x16 float32"});
}

TEST(MessageFormat, ADifferentTypeOfOneMicroBatchIsFound) {
  EXPECT_EQ(problems(R"([{"end": "1SEND_B", "shape": [4], "dtype": "float32"},
                         {"end": "0RECV_B", "shape": [4], "dtype": "float32"},
                         {"end": "0RECV_B1", "shape": [4], "dtype": "float16"}])"),
            std::vector<std::string>{"1SEND_B1 sends 4 float32, but 0RECV_B1 takes 4 float16"});
}

TEST(MessageFormat, WrittenEndsAreNamedWithTheirPlace) {
  const std::string text = R"({"schema": "pipewright.order/1",
      "ranks": [["0F0", "0SEND_F0", "0RECV_B0", "0B0"], ["1RECV_F0", "1F0", "1B0", "1SEND_B0"]],
      "messages": [{"end": "0SEND_F0", "shape": [], "dtype": "int64"},
                   {"end": "1RECV_F0", "shape": [1], "dtype": "int64"}]})";
  const Order order = read_order_json(JsonCursor(parse_json(text, "order.json"), "order.json"));
  EXPECT_EQ(problems_of(order),
            std::vector<std::string>{"rank 0, action 2: 0SEND_F0 sends a single int64, but "
                                     "1RECV_F0 takes 1 int64"});
  EXPECT_EQ(to_json(order).at("messages").size(), 2U);
}

TEST(MessageFormat, WhatIsNoDescriptionIsRefusedAtItsPlace) {
  for (const auto& [messages, pointer] : std::vector<std::pair<std::string, std::string>>{
           {R"([{"end": "0F0", "shape": [1], "dtype": "int8"}])", "/messages/0/end"},
           {R"([{"end": "0SEND_F", "shape": [-1], "dtype": "int8"}])", "/messages/0/shape/0"},
           {R"([{"end": "0SEND_F", "shape": [1], "dtype": "flaot32"}])", "/messages/0/dtype"},
           {R"([{"end": "0SEND_F", "shape": [1], "dtype": "int8"},
                {"end": "0SEND_F", "shape": [1], "dtype": "int8"}])",
            "/messages/1/end"},
           {R"([{"end": "0SEND_F", "size": [1], "dtype": "int8"}])", "/messages/0/size"}}) {
    try {
      order_with(messages);
      ADD_FAILURE() << messages;
    } catch (const InputError& error) {
      EXPECT_EQ(error.pointer(), pointer) << error.what();
    }
  }
}

}  // namespace message_format_test
}  // namespace pipewright
