// Pickles of plain data, byte by byte as pickletools documents them, and what is refused.
#include "core/base/pickle.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "tests/support/expect_refusal.hpp"

namespace pipewright {
namespace pickle_test {

using namespace std::string_literals;
using testing::HasSubstr;

Json read(const std::string& bytes) { return parse_pickle(bytes, "dump0"); }

/// The refusal of bytes, one line that names the file.
std::string refused(const std::string& bytes) {
  const InputError error = test::refusal([&] { read(bytes); });
  test::expect_one_line(error);
  EXPECT_EQ(error.file(), "dump0");
  return error.message();
}

TEST(Pickle, Values) {
  EXPECT_EQ(read("\x80\x02N."s), nullptr);
  EXPECT_EQ(read("\x80\x02\x88."s), true);
  EXPECT_EQ(read("\x80\x02\x89."s), false);
  EXPECT_EQ(read("\x80\x02K\xff."s), 255);
  EXPECT_EQ(read("\x80\x02M\x01\x02."s), 513);
  EXPECT_EQ(read("\x80\x02J\xff\xff\xff\xff."s), -1);
  EXPECT_EQ(read("\x80\x02J\xff\xff\xff\x7f."s), 2147483647);
  EXPECT_EQ(read("\x80\x02\x8a\x00."s), 0);
  EXPECT_EQ(read("\x80\x02\x8a\x01\x80."s), -128);
  EXPECT_EQ(read("\x80\x02\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80."s),
            std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(read("\x80\x02G\x3f\xf8\x00\x00\x00\x00\x00\x00."s), 1.5);
  EXPECT_EQ(read("\x80\x02X\x03\x00\x00\x00"
                 "abc."s),
            "abc");
  EXPECT_EQ(read("\x80\x04\x8c\x02\xc3\xa4."s), "ä");
  EXPECT_EQ(read("\x80\x04\x8d\x01\x00\x00\x00\x00\x00\x00\x00z."s), "z");
}

TEST(Pickle, Containers) {
  EXPECT_EQ(read("\x80\x02]."s), Json::array());
  EXPECT_EQ(read("\x80\x02)."s), Json::array());
  EXPECT_EQ(read("\x80\x02}."s), Json::object());
  EXPECT_EQ(read("\x80\x02]K\x01"
                 "a."s),
            Json({1}));
  EXPECT_EQ(read("\x80\x02](K\x01K\x02"
                 "e."s),
            Json({1, 2}));
  EXPECT_EQ(read("\x80\x02K\x01\x85."s), Json({1}));
  EXPECT_EQ(read("\x80\x02K\x01K\x02\x86."s), Json({1, 2}));
  EXPECT_EQ(read("\x80\x02K\x01K\x02K\x03\x87."s), Json({1, 2, 3}));
  EXPECT_EQ(read("\x80\x02(K\x01K\x02K\x03K\x04t."s), Json({1, 2, 3, 4}));
  EXPECT_EQ(read("\x80\x02(K\x01l."s), Json({1}));
  EXPECT_EQ(read("\x80\x02}X\x01\x00\x00\x00kK\x05s."s), Json({{"k", 5}}));
  EXPECT_EQ(read("\x80\x02}(X\x01\x00\x00\x00kK\x05X\x01\x00\x00\x00lNu."s),
            Json({{"k", 5}, {"l", nullptr}}));
}

TEST(Pickle, ALaterItemOfAKeyIsTheOneThatStays) {
  EXPECT_EQ(read("\x80\x02}(\x8c\x01kK\x05\x8c\x01kK\x06u."s), Json({{"k", 6}}));
}

TEST(Pickle, WhatIsNamedBeforeItIsFilledIsRecalledFull) {
  // A list under name 0, filled, and recalled beside itself in a tuple.
  EXPECT_EQ(read("\x80\x02]q\x00(K\x01K\x02"
                 "eh\x00\x86."s),
            Json({{1, 2}, {1, 2}}));
  EXPECT_EQ(read("\x80\x04]\x94(K\x01"
                 "eh\x00\x86."s),
            Json({{1}, {1}}));
  EXPECT_EQ(read("\x80\x02]r\x00\x01\x00\x00K\x07"
                 "aj\x00\x01\x00\x00\x86."s),
            Json({{7}, {7}}));
}

TEST(Pickle, WhatBuildsOrCallsIsRefusedByNameAndPlace) {
  EXPECT_THAT(refused("\x80\x02"
                      "cos\nsystem\n."s),
              HasSubstr("at byte 2 it has the opcode GLOBAL"));
  EXPECT_THAT(refused("\x80\x02K\x01K\x02R."s), HasSubstr("at byte 6 it has the opcode REDUCE"));
  EXPECT_THAT(refused("\x80\x04\x8c\x02os\x8c\x06system\x93."s), HasSubstr("STACK_GLOBAL"));
  EXPECT_THAT(refused("\x80\x02}b."s), HasSubstr("BUILD"));
  EXPECT_THAT(refused("\x80\x02)\x81."s), HasSubstr("NEWOBJ"));
  EXPECT_THAT(refused("(ios\nsystem\n."s), HasSubstr("INST"));
  EXPECT_THAT(refused("\x80\x02(o."s), HasSubstr("OBJ"));
  EXPECT_THAT(refused("\x80\x02\x82\x01."s), HasSubstr("EXT1"));
  EXPECT_THAT(refused("\x80\x02NQ."s), HasSubstr("BINPERSID"));
  EXPECT_THAT(refused("\x80\x03"
                      "C\x01z."s),
              HasSubstr("SHORT_BINBYTES"));
  EXPECT_THAT(refused("\x80\x04\x8f."s), HasSubstr("EMPTY_SET"));
  EXPECT_THAT(refused("\x80\x02\xfe."s),
              HasSubstr("at byte 2 it has a byte that is no opcode (254)"));
}

TEST(Pickle, EveryBeginningOfOneIsRefused) {
  const std::string whole =
      "\x80\x04\x95\x28\x00\x00\x00\x00\x00\x00\x00}q\x00("
      "X\x01\x00\x00\x00kG\x3f\xf8\x00\x00\x00\x00\x00\x00"
      "\x8c\x01l](K\x01M\x01\x02J\x01\x02\x03\x04\x8a\x01\x05"
      "eu."s;
  EXPECT_EQ(read(whole), Json({{"k", 1.5}, {"l", {1, 513, 67305985, 5}}}));
  for (std::size_t length = 0; length < whole.size(); ++length)
    EXPECT_THAT(refused(whole.substr(0, length)), HasSubstr("is cut off")) << length;
}

TEST(Pickle, WhatMakesNoDocumentIsRefused) {
  EXPECT_THAT(refused("\x80\x06N."s), HasSubstr("protocol"));
  EXPECT_THAT(refused("\x80\x02."s), HasSubstr("ends with 0 values"));
  EXPECT_THAT(refused("\x80\x02NN."s), HasSubstr("ends with 2 values"));
  EXPECT_THAT(refused("\x80\x02(N."s), HasSubstr("not with one"));
  EXPECT_THAT(refused("\x80\x02"
                      "e."s),
              HasSubstr("a mark that is not there"));
  EXPECT_THAT(refused("\x80\x02N(\x85."s), HasSubstr("a value that is not there"));
  EXPECT_THAT(refused("\x80\x02NNa."s), HasSubstr("appends to what is no list"));
  EXPECT_THAT(refused("\x80\x02)Na."s), HasSubstr("appends to what is no list"));
  EXPECT_THAT(refused("\x80\x02]NNs."s), HasSubstr("no dict"));
  EXPECT_THAT(refused("\x80\x02}(Nu."s), HasSubstr("a key without a value"));
  EXPECT_THAT(refused("\x80\x02}NNs."s), HasSubstr("a key that is no text"));
  EXPECT_THAT(refused("\x80\x02h\x07."s), HasSubstr("recalls what it has not named"));
  EXPECT_THAT(refused("\x80\x02\x8c\x01\xff."s), HasSubstr("no UTF-8"));
  EXPECT_THAT(refused("\x80\x02G\x7f\xf8\x00\x00\x00\x00\x00\x00."s), HasSubstr("not finite"));
  EXPECT_THAT(refused("\x80\x02\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\x01."s),
              HasSubstr("more than 64 bits"));
}

TEST(Pickle, WhatHoldsItselfOrGrowsWithoutEndIsRefused) {
  EXPECT_THAT(refused("\x80\x02]q\x00h\x00"
                      "a."s),
              HasSubstr("holds itself"));
  // Forty lists, each of the one before it twice.
  std::string doubled =
      "\x80\x02(]q\x00K\x01"
      "a"s;
  for (char name = 1; name <= 40; ++name)
    doubled +=
        "]q"s + name + "(h" + static_cast<char>(name - 1) + "h" + static_cast<char>(name - 1) + "e";
  EXPECT_THAT(refused(doubled + "t."), HasSubstr("5 million values"));
  EXPECT_THAT(refused("\x80\x02" + std::string(300, ']') + std::string(299, 'a') + "."),
              HasSubstr("200 levels"));
}

}  // namespace pickle_test
}  // namespace pipewright
