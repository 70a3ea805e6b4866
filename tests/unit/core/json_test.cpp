#include "core/base/json.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "core/base/error.hpp"

namespace pipewright {
namespace json_test {

namespace fs = std::filesystem;

/// The error that `action` throws, as (pointer, message).
template <class Action>
InputError refused(Action action) {
  try {
    action();
  } catch (const InputError& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return InputError("");
}

JsonCursor cursor(const Json& document) { return JsonCursor(document, "f.json"); }

TEST(ParseJson, SyntaxErrorsNameLineAndColumn) {
  const InputError error = refused([] { parse_json("{\n  \"a\": nope\n}", "f.json"); });
  EXPECT_EQ(error.file(), "f.json");
  EXPECT_EQ(error.pointer(), "line 2, column 9");
  EXPECT_EQ(refused([] { parse_json("", "f.json"); }).pointer(), "line 1, column 1");
  EXPECT_EQ(refused([] { parse_json("{\"a\":1}}", "f.json"); }).pointer(), "line 1, column 8");
}

TEST(ParseJson, DuplicateKeysAreNamed) {
  const InputError error =
      refused([] { parse_json(R"({"a": [{"b": 1, "c/d": {"x": 1, "x": 2}}]})", "f.json"); });
  EXPECT_EQ(error.pointer(), "/a/0/c~1d/x");
  EXPECT_EQ(error.message(), "this key stands twice in its object; keep one");
  // The same key in two objects is fine.
  EXPECT_EQ(parse_json(R"([{"a": 1}, {"a": 2}])", "f.json")[1]["a"], 2);
}

TEST(ParseJson, DepthIsLimited) {
  const auto nested = [](int depth) {
    return std::string(static_cast<std::size_t>(depth), '[') +
           std::string(static_cast<std::size_t>(depth), ']');
  };
  EXPECT_NO_THROW(parse_json(nested(200), "f.json"));
  EXPECT_THROW(parse_json(nested(201), "f.json"), InputError);
  // Far beyond any stack, were the parser recursive.
  EXPECT_THROW(parse_json(std::string(1'000'000, '['), "f.json"), InputError);
}

TEST(ParseJson, WhatJsonDoesNotHave) {
  for (const char* text :
       {"NaN", "[Infinity]", "{\"a\": 1,}", "{'a': 1}", "[01]", "// note\n1", "1e999", "\"\x80\"",
        "\"\xc3\"", "\"a\nb\"", "[1, 2", "\"open", "tru", "\x80\x04", "[1] 2"}) {
    const InputError error = refused([&] { parse_json(text, "f.json"); });
    EXPECT_FALSE(error.pointer().empty()) << text;
    for (const char c : std::string(error.what())) {
      EXPECT_TRUE(c >= 0x20 && c < 0x7f) << "one line of ASCII: " << error.what();
    }
  }
}

TEST(Cursor, TypesAndRanges) {
  const Json document = parse_json(
      R"({"i": 7, "big": 99999999999999999999, "f": 4.0, "half": 0.5, "s": "text", "b": true,
          "n": null, "u": 18446744073709551615})",
      "f.json");
  const JsonCursor root = cursor(document);
  EXPECT_EQ(root.at("i").integer(0, 7), 7);
  EXPECT_EQ(root.at("f").integer(0, 7), 4);
  EXPECT_EQ(root.at("half").number(0, 1), 0.5);
  EXPECT_EQ(root.at("i").number(0, 10), 7.0);
  EXPECT_EQ(root.at("s").string(), "text");
  EXPECT_TRUE(root.at("b").boolean());
  EXPECT_EQ(refused([&] { root.at("i").integer(0, 6); }).message(),
            "expected a whole number from 0 to 6, found 7");
  for (const char* key : {"big", "half", "s", "n", "u", "b"}) {
    EXPECT_EQ(refused([&] { root.at(key).integer(0, INT64_MAX); }).pointer(),
              std::string("/") + key);
  }
  EXPECT_EQ(refused([&] { root.at("s").number(0, 1); }).message(),
            "expected a number from 0.0 to 1.0, found \"text\"");
  EXPECT_EQ(refused([&] { root.at("n").string(); }).message(), "expected a string, found null");
  EXPECT_EQ(refused([&] { root.at("s").boolean(); }).message(),
            "expected true or false, found \"text\"");
  EXPECT_EQ(refused([&] { root.at("s").elements(); }).message(),
            "expected an array, found \"text\"");
  EXPECT_EQ(refused([&] { root.at("i").find("x"); }).message(), "expected an object, found 7");
}

TEST(Cursor, MissingAndUnknownMembers) {
  const Json document = parse_json(R"({"layers": [], "a~b": {"x/y": 1}})", "f.json");
  const JsonCursor root = cursor(document);
  EXPECT_STREQ(refused([&] { root.at("stages"); }).what(),
               "f.json: expected a member \"stages\"; add it");
  EXPECT_EQ(root.at("a~b").at("x/y").pointer(), "/a~0b/x~1y");
  const InputError unknown = refused([&] { root.only({"layer", "a~b"}); });
  EXPECT_EQ(unknown.pointer(), "/layers");
  EXPECT_EQ(unknown.message(),
            "unknown key (did you mean \"layer\"?); the keys here are layer a~b");
}

TEST(Cursor, LongAndStrangeValuesStayShort) {
  const Json document = {{"s", std::string(5000, 'x')}, {"t", "line\nbreak \x1b[31m"}};
  EXPECT_LT(refused([&] { cursor(document).at("s").boolean(); }).message().size(), 120U);
  EXPECT_EQ(refused([&] { cursor(document).at("t").boolean(); }).message(),
            "expected true or false, found \"line\\nbreak \\u001b[31m\"");
}

TEST(Schema, KindAndVersion) {
  const auto message = [](const char* text) {
    const Json document = parse_json(text, "f.json");
    return refused([&] { require_schema(cursor(document), "plan"); }).message();
  };
  const Json right = {{"schema", "pipewright.plan/1"}};
  EXPECT_NO_THROW(require_schema(cursor(right), "plan"));
  EXPECT_EQ(message("{}"), "expected a member \"schema\": \"pipewright.plan/1\"; add it");
  EXPECT_EQ(message(R"({"schema": "pipewright.job/1"})"),
            "expected \"pipewright.plan/1\", found \"pipewright.job/1\"");
  EXPECT_EQ(message(R"({"schema": "pipewright.plan/2"})"),
            "this file has format version \"2\"; this Pipewright reads version 1 only "
            "(\"pipewright.plan/1\")");
  EXPECT_EQ(message(R"({"schema": 1})"), "expected a string, found 1");
  EXPECT_EQ(message("[]"), "expected an object, found an array of 0");
}

TEST(Text, ShortArraysOnOneLine) {
  const Json document = parse_json(
      R"({"a":[1,2.5,"x"],"b":{"c":[],"d":{}},"e":[[1],[2,3]],"f":[{"g":true}]})", "f.json");
  EXPECT_EQ(to_text(document), R"({
  "a": [1, 2.5, "x"],
  "b": {
    "c": [],
    "d": {}
  },
  "e": [
    [1],
    [2, 3]
  ],
  "f": [
    {
      "g": true
    }
  ]
}
)");
  EXPECT_EQ(parse_json(to_text(document), "f.json"), document);
}

class Files : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("pipewright-json-test-" + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::size_t entries() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }
  fs::path folder_;
};

TEST_F(Files, WrittenWholeOverAnOldOne) {
  const fs::path path = folder_ / "a.json";
  write_file(path, "old");
  write_file(path, std::string("new\0text", 8));
  EXPECT_EQ(read_text(path.string()), std::string("new\0text", 8));
  EXPECT_EQ(entries(), 1U);
}

TEST_F(Files, ALinkStaysALink) {
  write_file(folder_ / "a.json", "old");
  fs::create_symlink("a.json", folder_ / "link.json");
  write_file(folder_ / "link.json", "new");
  EXPECT_TRUE(fs::is_symlink(folder_ / "link.json"));
  EXPECT_EQ(read_text((folder_ / "a.json").string()), "new");
}

TEST_F(Files, AFailureLeavesNothingBehind) {
  EXPECT_THROW(write_file(folder_ / "no-such" / "a.json", "x"), MachineError);
  EXPECT_THROW(write_file(folder_, "x"), MachineError);
  EXPECT_EQ(entries(), 0U);
}

TEST_F(Files, AFullDiskLeavesNothingBehind) {
  // /dev/full answers every write with "no space left"; it is written in place, as a pipe is.
  try {
    write_file("/dev/full", "x");
    FAIL() << "a full disk took the bytes";
  } catch (const MachineError& error) {
    EXPECT_STREQ(error.what(), "cannot write /dev/full: No space left on device");
  }
  EXPECT_NO_THROW(write_file("/dev/null", "x"));
}

TEST_F(Files, UnreadableOnesAreTheInputsFault) {
  EXPECT_STREQ(
      refused([&] { read_text((folder_ / "none.json").string()); }).what(),
      ((folder_ / "none.json").string() + ": cannot be read: No such file or directory").c_str());
  EXPECT_EQ(refused([&] { read_text(folder_.string()); }).message(),
            "is a folder; expected a file");
}

}  // namespace json_test
}  // namespace pipewright
