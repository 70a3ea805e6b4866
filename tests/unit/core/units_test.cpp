#include "core/base/units.hpp"

#include <gtest/gtest.h>

#include "core/base/error.hpp"

namespace pipewright {
namespace units_test {

std::int64_t ns(std::string_view text) { return parse_duration(text, "--cost").value; }
std::int64_t bytes(std::string_view text) { return parse_bytes(text, "--mem").value; }

TEST(Durations, UnitsAreExact) {
  EXPECT_EQ(ns("1500"), 1500);
  EXPECT_EQ(ns("0"), 0);
  EXPECT_EQ(ns("2.5ms"), 2'500'000);
  EXPECT_EQ(ns(" 3 us "), 3000);
  EXPECT_EQ(ns("3\xc2\xb5s"), 3000);
  EXPECT_EQ(ns(".5us"), 500);
  EXPECT_EQ(ns("0.000000001s"), 1);
  EXPECT_EQ(ns("30s"), 30'000'000'000);
  EXPECT_EQ(ns("1.1min"), 66'000'000'000);
  EXPECT_EQ(ns("27h"), 97'200'000'000'000);
  EXPECT_EQ(ns("100000000000000"), 100'000'000'000'000);
}

TEST(Durations, RefusedWithTheNameOfTheFlag) {
  for (const char* text : {"", "ms", "-5", "1.5", "0.5ns", "0.0000000001s", "5 weeks", "1e3",
                           "2,5ms", "100000000000001", "28h", "99999999999999999999", "1..5s",
                           "nan", "0x10", "1 000", "5ms5"}) {
    try {
      ns(text);
      FAIL() << "accepted \"" << text << "\"";
    } catch (const InputError& error) {
      EXPECT_TRUE(std::string(error.what()).starts_with("--cost: expected ")) << error.what();
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    }
  }
}

TEST(Sizes, BinaryAndDecimalUnits) {
  EXPECT_EQ(bytes("4096"), 4096);
  EXPECT_EQ(bytes("4095B"), 4095);
  EXPECT_EQ(bytes("16KiB"), 16384);
  EXPECT_EQ(bytes("16kB"), 16000);
  EXPECT_EQ(bytes("2GB"), 2'000'000'000);
  EXPECT_EQ(bytes("1.5GiB"), 1'610'612'736);
  EXPECT_EQ(bytes("1TiB"), 1'099'511'627'776);
  EXPECT_EQ(bytes("-40"), -40);
  // 0.1 KiB = 102.4 bytes: the fraction is cut off.
  EXPECT_EQ(bytes("0.1KiB"), 102);
  for (const char* text : {"", "B", "--4", "1.5", "5GHz", "16ki", "9007199254740993", "9000TiB"}) {
    EXPECT_THROW(bytes(text), InputError) << text;
  }
}

TEST(Bandwidths, BytesAndBits) {
  EXPECT_DOUBLE_EQ(parse_bandwidth("25GB/s", "link"), 25e9);
  EXPECT_DOUBLE_EQ(parse_bandwidth("100Gb/s", "link"), 12.5e9);
  EXPECT_DOUBLE_EQ(parse_bandwidth("100Gbps", "link"), 12.5e9);
  EXPECT_DOUBLE_EQ(parse_bandwidth("3GiB/s", "link"), 3221225472.0);
  EXPECT_DOUBLE_EQ(parse_bandwidth("1000", "link"), 1000.0);
  EXPECT_DOUBLE_EQ(parse_bandwidth("8 b/s", "link"), 1.0);
  for (const char* text : {"", "0", "-1", "fast", "25GB", "25G/s", "25GB/h"}) {
    EXPECT_THROW(parse_bandwidth(text, "link"), InputError) << text;
  }
}

TEST(Formatting, ThreeSignificantDigits) {
  EXPECT_EQ(format_duration(Nanoseconds(0)), "0 ns");
  EXPECT_EQ(format_duration(Nanoseconds(950)), "950 ns");
  EXPECT_EQ(format_duration(Nanoseconds(1000)), "1.00 us");
  EXPECT_EQ(format_duration(Nanoseconds(9'994)), "9.99 us");
  EXPECT_EQ(format_duration(Nanoseconds(9'995)), "10.0 us");
  EXPECT_EQ(format_duration(Nanoseconds(33'000'000)), "33.0 ms");
  EXPECT_EQ(format_duration(Nanoseconds(99'950'000)), "100 ms");
  EXPECT_EQ(format_duration(Nanoseconds(999'499)), "999 us");
  EXPECT_EQ(format_duration(Nanoseconds(999'500)), "1.00 ms");
  EXPECT_EQ(format_duration(Nanoseconds(1'234'000'000'000)), "1234 s");
  EXPECT_EQ(format_duration(Nanoseconds(-33'000'000)), "-33.0 ms");
  EXPECT_EQ(format_duration(Nanoseconds(INT64_MAX)), "9223372037 s");
  EXPECT_EQ(format_duration(Nanoseconds(INT64_MIN)), "-9223372037 s");
}

TEST(Formatting, BinaryBytes) {
  EXPECT_EQ(format_bytes(Bytes(512)), "512 B");
  EXPECT_EQ(format_bytes(Bytes(1023)), "1023 B");
  EXPECT_EQ(format_bytes(Bytes(1024)), "1.00 KiB");
  EXPECT_EQ(format_bytes(Bytes(1'610'612'736)), "1.50 GiB");
  EXPECT_EQ(format_bytes(Bytes((1 << 20) - 1)), "1.00 MiB");
  EXPECT_EQ(format_bytes(Bytes(INT64_MAX)), "8388608 TiB");
}

}  // namespace units_test
}  // namespace pipewright
