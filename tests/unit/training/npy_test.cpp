// .npy files: bytes as NumPy writes them, back and forth, and what is refused.
#include "exec/data/npy.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <limits>

#include "core/base/json.hpp"
#include "tests/support/expect_refusal.hpp"

namespace pipewright::exec {
namespace npy_test {

using test::expect_one_line;
using test::refusal;

template <class T>
std::string bytes_of_elements(const std::vector<T>& elements) {
  return {reinterpret_cast<const char*>(elements.data()), elements.size() * sizeof(T)};
}

/// A file of the version, with the dictionary as it is given.
std::string file_of(const std::string& dictionary, const std::string& data, int major = 1) {
  std::string bytes = "\x93NUMPY";
  bytes += static_cast<char>(major);
  bytes += '\0';
  const std::size_t length = dictionary.size();
  for (int i = 0; i < (major == 1 ? 2 : 4); ++i) bytes += static_cast<char>(length >> 8 * i & 255);
  return bytes + dictionary + data;
}

std::string header(const std::string& type, const std::string& shape) {
  return "{'descr': '" + type + "', 'fortran_order': False, 'shape': " + shape + ", }";
}

std::string complaint(const std::string& bytes) {
  const InputError error = refusal([&] { parse_npy(bytes, "a.npy"); });
  expect_one_line(error);
  EXPECT_EQ(error.file(), "a.npy");
  return error.message();
}

TEST(Npy, AFileIsWrittenAsNumpyWritesIt) {
  // numpy.save() of numpy.float32([[1, 2], [3, 4]]), as the format's documentation spells it.
  std::string expected("\x93NUMPY\x01\x00\x76\x00", 10);
  expected += "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }";
  expected.resize(127, ' ');
  expected += '\n';
  const std::vector<float> elements{1, 2, 3, 4};
  EXPECT_EQ(npy_bytes({2, 2}, elements), expected + bytes_of_elements(elements));
}

TEST(Npy, EveryTypeIsReadInEveryVersion) {
  for (const int major : {1, 2, 3}) {
    const auto read = [&](const std::string& type, const std::string& data) {
      return parse_npy(file_of(header(type, "(3,)"), data, major), "a.npy");
    };
    const std::vector<float> expected{1, 0, 7};
    EXPECT_EQ(floats_of(read("<f4", bytes_of_elements<float>({1, 0, 7})), 0, 3), expected);
    EXPECT_EQ(floats_of(read("<f8", bytes_of_elements<double>({1, 0, 7})), 0, 3), expected);
    EXPECT_EQ(floats_of(read("<i4", bytes_of_elements<std::int32_t>({1, 0, 7})), 0, 3), expected);
    EXPECT_EQ(floats_of(read("<i8", bytes_of_elements<std::int64_t>({1, 0, 7})), 0, 3), expected);
    const NpyArray bytes = read("|u1", bytes_of_elements<std::uint8_t>({1, 0, 7}));
    EXPECT_EQ(floats_of(bytes, 0, 3), expected);
    EXPECT_EQ(integers_of(bytes, 1, 2), (std::vector<std::int32_t>{0, 7}));
  }
}

TEST(Npy, ShapesOfAnyDimensionComeBack) {
  const std::vector<std::vector<std::int64_t>> shapes{{}, {6}, {2, 3}, {1, 2, 1, 3}, {0}, {0, 4}};
  for (const auto& shape : shapes) {
    std::int64_t count = 1;
    for (const auto size : shape) count *= size;
    std::vector<std::int32_t> elements(static_cast<std::size_t>(count), -5);
    const NpyArray array = parse_npy(npy_bytes(shape, elements), "a.npy");
    EXPECT_EQ(array.shape, shape);
    EXPECT_EQ(array.type, NpyType::Int32);
    EXPECT_EQ(integers_of(array, 0, count), elements);
  }
}

TEST(Npy, KeysMayStandInAnyOrderAndWithoutSpaces) {
  const std::string dictionary = "{\"shape\":(1,2),'descr':'<i4','fortran_order':False}";
  const NpyArray array =
      parse_npy(file_of(dictionary, bytes_of_elements<std::int32_t>({3, 4})), "a.npy");
  EXPECT_EQ(array.shape, (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(array.elements_per_entry(), 2);
}

TEST(Npy, TheRangeOfWholeNumbersIsFound) {
  const auto extremes = bytes_of_elements<std::int64_t>(
      {5, std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max()});
  const IntegerRange range =
      integer_range(parse_npy(file_of(header("<i8", "(3,)"), extremes), "a.npy"));
  EXPECT_EQ(range.least, std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(range.most, std::numeric_limits<std::int64_t>::max());
}

TEST(Npy, WhatIsNotSuchAFileIsRefused) {
  const std::string four = std::string(4, '\0');
  EXPECT_NE(complaint("PK\x03\x04").find("not a .npy"), std::string::npos);
  EXPECT_NE(complaint("\x93NUMPY").find("ends within"), std::string::npos);
  EXPECT_NE(complaint(file_of(header("<f4", "(1,)"), four, 4)).find("version 4.0"),
            std::string::npos);
  EXPECT_NE(complaint(file_of(header(">f4", "(1,)"), four)).find("astype"), std::string::npos);
  EXPECT_NE(complaint(file_of("{'descr': [('a', '<f4')], ", four)).find("named fields"),
            std::string::npos);
  EXPECT_NE(complaint(file_of("{'descr': '<f4', 'fortran_order': True, 'shape': (1,), }", four))
                .find("column"),
            std::string::npos);
  EXPECT_NE(complaint(file_of(header("<f4", "(2,)"), four)).find("promises 8"), std::string::npos);
  EXPECT_NE(complaint(file_of(header("<f4", "(1,)"), four + "x")).find("5 follow"),
            std::string::npos);
}

TEST(Npy, ABrokenDictionaryIsRefused) {
  const std::string good = header("<f4", "(1,)"), four = std::string(4, '\0');
  ASSERT_NO_THROW(parse_npy(file_of(good, four), "a.npy"));
  for (std::size_t length = 0; length < good.size(); ++length) {
    complaint(file_of(good.substr(0, length), four));
  }
  for (const std::string shape :
       {"(1)", "(1,,)", "(,)", "(-1,)", "(1 1,)", "[1]", "(1.0,)", "(1L,)",
        "(99999999999999999999,)", "(4294967296, 4294967296)", "(0, 9999999999, 9999999999)"}) {
    complaint(file_of(header("<f4", shape), four));
  }
  complaint(file_of("{'descr': '<f4', 'descr': '<f4', 'shape': (1,)}", four));
  complaint(file_of("{'descr': '<f4', 'shape': (1,)}", four));
  complaint(file_of(good + "}", four));
}

TEST(Npy, FilesAreWrittenWholeAndReadBack) {
  const std::string path =
      testing::TempDir() + "pipewright_npy_" + std::to_string(getpid()) + ".npy";
  const std::vector<float> elements{0.5F, -0.0F, std::numeric_limits<float>::infinity()};
  write_npy(path, {3, 1}, elements);
  const NpyArray array = read_npy(path);
  std::filesystem::remove(path);
  EXPECT_EQ(array.shape, (std::vector<std::int64_t>{3, 1}));
  EXPECT_EQ(array.data, bytes_of_elements(elements));
  EXPECT_EQ(refusal([&] { read_npy(path); }).file(), path);
  EXPECT_THROW(write_npy("/no/such/folder/a.npy", {3}, elements), MachineError);
}

}  // namespace npy_test
}  // namespace pipewright::exec
