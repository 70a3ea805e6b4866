// safetensors files: the format byte by byte, what is refused, and checkpoints there and back.
#include "exec/checkpoint/safetensors.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <filesystem>
#include <fstream>
#include <limits>

#include "core/model/model.hpp"
#include "exec/checkpoint/array_names.hpp"
#include "exec/checkpoint/exchange.hpp"
#include "tests/support/expect_refusal.hpp"

namespace pipewright::exec {
namespace safetensors_test {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

/// A file with that header and so many bytes of data.
std::string file_of(const std::string& header, std::size_t data) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(header.size() >> (8 * i));
  return bytes + header + std::string(data, '\0');
}

SafetensorsHeader parsed(const std::string& bytes) {
  return parse_safetensors(bytes, static_cast<std::int64_t>(bytes.size()), "m.safetensors");
}

TEST(Safetensors, TheHeaderSaysWhereTensorsLie) {
  const SafetensorsHeader header = parsed(file_of(
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[2,3],"data_offsets":[4,28]},)"
      R"("a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]},)"
      R"("none":{"dtype":"I64","shape":[0,7],"data_offsets":[28,28]}}   )",
      28));
  EXPECT_EQ(header.metadata.at("format"), "pt");
  ASSERT_EQ(header.tensors.size(), 3U);
  EXPECT_EQ(header.tensors[0].name, "a");
  EXPECT_EQ(header.tensors[1].name, "b");
  EXPECT_EQ(header.tensors[1].elements(), 6);
  EXPECT_EQ(header.tensors[1].bytes, 24);
  EXPECT_EQ(header.tensors[1].first_byte, header.tensors[0].first_byte + 4);
  EXPECT_EQ(header.find("none")->elements(), 0);
  EXPECT_EQ(header.find("c"), nullptr);
  EXPECT_TRUE(parsed(file_of("{}", 0)).tensors.empty());
}

std::string refused(const std::string& bytes) {
  const InputError error = test::refusal([&] { (void)parsed(bytes); });
  test::expect_one_line(error);
  return error.what();
}

TEST(Safetensors, WhatDoesNotFitIsRefused) {
  const auto one = [](const std::string& tensor, std::size_t data) {
    return file_of("{\"a\":" + tensor + "}", data);
  };
  EXPECT_THAT(refused(""), HasSubstr("first eight bytes"));
  EXPECT_THAT(refused("hello"), HasSubstr("first eight bytes"));
  EXPECT_THAT(refused(std::string(8, '\xff')), HasSubstr("first eight bytes"));
  EXPECT_THAT(refused(file_of("[]", 0)), HasSubstr("no JSON object"));
  EXPECT_THAT(refused(file_of("{", 0)), HasSubstr("not JSON"));
  EXPECT_THAT(refused(one(R"({"dtype":"F31","shape":[1],"data_offsets":[0,4]})", 4)),
              HasSubstr("/a/dtype"));
  EXPECT_THAT(refused(one(R"({"dtype":"F32","shape":[-1],"data_offsets":[0,4]})", 4)),
              HasSubstr("/a/shape/0"));
  EXPECT_THAT(refused(one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,4]})", 4)),
              HasSubstr("as many bytes as the shape needs"));
  EXPECT_THAT(refused(one(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4,8]})", 8)),
              HasSubstr("where it ends"));
  EXPECT_THAT(refused(one(R"({"dtype":"F32","shape":[1],"data_offsets":[4,0]})", 4)),
              HasSubstr("/a/data_offsets/1"));
  EXPECT_THAT(refused(one(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4]})", 3)),
              HasSubstr("/a/data_offsets/1"));
  EXPECT_THAT(refused(one(R"({"dtype":"F32","shape":[1],"data_offsets":[4,8]})", 8)),
              HasSubstr("without gap"));
  EXPECT_THAT(refused(one(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4]})", 8)),
              HasSubstr("end at byte"));
  EXPECT_THAT(
      refused(one(R"({"dtype":"F32","shape":[4294967296,4294967296,8],"data_offsets":[0,4]})", 4)),
      HasSubstr("as many bytes"));
  EXPECT_THAT(
      refused(file_of(
          R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
          4)),
      HasSubstr("overlap"));
  EXPECT_THAT(
      refused(file_of(
          R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
          4)),
      HasSubstr("stands twice"));
  EXPECT_THAT(refused(file_of(R"({"__metadata__":{"x":1}})", 0)), HasSubstr("/__metadata__/x"));
}

/// A folder of its own, which goes away.
class Exchange : public testing::Test {
 protected:
  Exchange()
      : root_(fs::temp_directory_path() / ("pipewright-exchange-" + std::to_string(::getpid()))) {
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  ~Exchange() override { fs::remove_all(root_); }

  /// Two ranks' parts; one array lies in both.
  Checkpoint saved(const std::string& folder) const {
    const std::vector<float> odd = {1.5F, -0.0F, std::numeric_limits<float>::quiet_NaN(),
                                    std::bit_cast<float>(0x7fa00001U),  // a signalling NaN
                                    std::numeric_limits<float>::denorm_min()};
    const std::vector<float> mean = {1, 2, 3, 4, 5}, bias = {7}, whole = {0, 1, 2, 3};
    const fs::path step = checkpoint_folder(root_ / folder, 12);
    std::vector<CheckpointPart> parts;
    const std::vector<StatePiece> first = {
        {"0.a b/weight", "value", 0, 5, odd},
        {"0.a b/weight", "mean", 0, 5, mean},
        {"1.c/weight", "value", 0, 4, std::span(whole).first(1)}};
    const std::vector<StatePiece> second = {
        {"1.c/weight", "value", 1, 4, std::span(whole).subspan(1)},
        {"1.c/bias", "value", 0, 1, bias}};
    parts.push_back(write_checkpoint_part(step, 0, first));
    parts.push_back(write_checkpoint_part(step, 1, second));
    write_manifest(step, facts_, parts);
    return Checkpoint::open(root_ / folder);
  }

  static std::vector<std::uint32_t> bits(const Checkpoint& checkpoint, const std::string& parameter,
                                         std::string_view slot) {
    std::vector<float> values(
        static_cast<std::size_t>(checkpoint.size_of(parameter, slot).value()));
    checkpoint.read(parameter, slot, values);
    std::vector<std::uint32_t> bits;
    for (const float value : values) bits.push_back(std::bit_cast<std::uint32_t>(value));
    return bits;
  }
  static void expect_same(const Checkpoint& one, const Checkpoint& other) {
    EXPECT_EQ(one.sizes(), other.sizes());
    EXPECT_EQ(one.facts().step, other.facts().step);
    EXPECT_EQ(one.facts().optimizer, other.facts().optimizer);
    for (const auto& [array, size] : one.sizes())
      EXPECT_EQ(bits(one, array.first, array.second), bits(other, array.first, array.second))
          << array.first;
  }

  const fs::path root_;
  const CheckpointFacts facts_{.model = model_preset("mlp"),
                               .step = 12,
                               .updates = 12,
                               .optimizer = "adamw",
                               .numerics = "exact"};
};

TEST_F(Exchange, EveryBitComesBack) {
  const Checkpoint before = saved("saved");
  const fs::path file = root_ / "all.safetensors";
  EXPECT_EQ(export_checkpoint(before, file, true).arrays, 4);
  Exchanged exchanged;
  const fs::path folder = import_checkpoint(file, std::nullopt, root_ / "back", exchanged);
  EXPECT_EQ(folder, root_ / "back" / "step-00000012");
  EXPECT_EQ(exchanged.arrays, 4);
  EXPECT_EQ(exchanged.kept, 0);
  expect_same(before, Checkpoint::open(root_ / "back"));
  const SafetensorsHeader header = read_safetensors(file);
  std::vector<std::string> names;
  for (const SafeTensor& tensor : header.tensors) names.push_back(tensor.name);
  EXPECT_THAT(names, ElementsAre("0.a b/weight:mean", "0.a b/weight", "1.c/bias", "1.c/weight"));
  EXPECT_EQ(header.tensors.front().first_byte % 8, 0);
}

TEST_F(Exchange, WeightsAloneTakeTheRestFromAnother) {
  const Checkpoint before = saved("saved");
  const fs::path file = root_ / "weights.safetensors";
  EXPECT_EQ(export_checkpoint(before, file, false).arrays, 3);
  EXPECT_EQ(read_safetensors(file).tensors.size(), 3U);
  Exchanged exchanged;
  import_checkpoint(file, before, root_ / "back", exchanged);
  EXPECT_EQ(exchanged.arrays, 3);
  EXPECT_EQ(exchanged.kept, 1);
  expect_same(before, Checkpoint::open(root_ / "back"));
}

TEST_F(Exchange, WhatDoesNotFitIsRefusedAndLeavesNothing) {
  const Checkpoint like = saved("saved");
  const auto written = [&](const std::string& bytes) {
    const fs::path file = root_ / "bad.safetensors";
    std::ofstream(file, std::ios::binary) << bytes;
    return file;
  };
  const auto refuse = [&](const std::string& bytes, bool with_like) {
    Exchanged exchanged;
    const InputError error = test::refusal([&] {
      import_checkpoint(written(bytes), with_like ? std::optional(like) : std::nullopt,
                        root_ / "back", exchanged);
    });
    test::expect_one_line(error);
    EXPECT_FALSE(fs::exists(root_ / "back"));
    return std::string(error.what());
  };
  const auto tensor = [](const std::string& name, const std::string& type, int elements,
                         int bytes) {
    return file_of("{\"" + name + "\":{\"dtype\":\"" + type + "\",\"shape\":[" +
                       std::to_string(elements) + "],\"data_offsets\":[0," + std::to_string(bytes) +
                       "]}}",
                   static_cast<std::size_t>(bytes));
  };
  EXPECT_THAT(refuse(tensor("1.c/bias", "F32", 1, 4), false), HasSubstr("--like"));
  EXPECT_THAT(refuse(tensor("1.c/bias", "F16", 1, 2), true), HasSubstr("is of the type F16"));
  EXPECT_THAT(refuse(tensor("1.c/bias", "F32", 2, 8), true), HasSubstr("has 2 elements, and 1 in"));
  EXPECT_THAT(refuse(tensor("lm_head", "F32", 1, 4), true), HasSubstr("/lm_head"));
  Exchanged exchanged;
  export_checkpoint(like, root_ / "all.safetensors", true);
  EXPECT_THAT(test::refusal([&] {
                import_checkpoint(root_ / "all.safetensors", std::nullopt, root_ / "saved",
                                  exchanged);
              }).what(),
              HasSubstr("is there already"));
  expect_same(like, Checkpoint::open(root_ / "saved"));
}

ArrayNames names_of(const std::string& arrays) {
  const Json document =
      parse_json(R"({"schema":"pipewright.names/1","arrays":[)" + arrays + "]}", "names.json");
  return ArrayNames::read(JsonCursor(document, "names.json"));
}

constexpr const char* kTheirs =
    R"({"ours":"*.c/weight","theirs":["c{1}.q.weight","c{1}.k.weight"],"rows":2,"transposed":true},)"
    R"({"ours":"*.a b/*","theirs":"first.{2}"})";

TEST(ArrayNames, ColumnsAreTensorsOfTheirOwn) {
  const ArrayNames names =
      names_of(R"({"ours":"*/qkv","theirs":["{1}.q","{1}.kv"],"rows":2,"columns":[1,2],)"
               R"("transposed":true},{"ours":"*","theirs":"any {1}"})");
  const std::vector<FileArray> tensors = names.of("7/qkv", 6);
  ASSERT_EQ(tensors.size(), 2U);
  EXPECT_EQ(tensors[0].name, "7.q");
  EXPECT_THAT(tensors[0].shape(), ElementsAre(1, 2));
  EXPECT_THAT(tensors[1].shape(), ElementsAre(2, 2));
  const std::vector<float> array = {1, 2, 3, 4, 5, 6};  // rows 1 2 3 and 4 5 6
  std::vector<float> q(2), kv(4), back(6);
  tensors[0].take(array, q);
  tensors[1].take(array, kv);
  EXPECT_THAT(q, ElementsAre(1, 4));
  EXPECT_THAT(kv, ElementsAre(2, 5, 3, 6));
  tensors[0].put(q, back);
  tensors[1].put(kv, back);
  EXPECT_EQ(back, array);
  // Without a slash in what * stands for; what nothing is about keeps its name.
  EXPECT_EQ(names.of("bias", 3).front().name, "any bias");
  EXPECT_EQ(names.of("0/bias", 3).front().name, "0/bias");
  EXPECT_THAT(names.of("0/bias", 3).front().shape(), ElementsAre(3));
}

TEST(ArrayNames, WhatCannotBeMeantIsRefusedWithItsPlace) {
  const auto refuse = [](const std::string& arrays) {
    const InputError error = test::refusal([&] { names_of(arrays).of("0/w", 6); });
    test::expect_one_line(error);
    return std::string(error.what());
  };
  EXPECT_THAT(refuse(R"({"ours":"0/w","theirs":"a{1}"})"), HasSubstr("/arrays/0/theirs"));
  EXPECT_THAT(refuse(R"({"ours":"*/w","theirs":["{1}","{2}"]})"), HasSubstr("/arrays/0/theirs/1"));
  EXPECT_THAT(refuse(R"({"ours":"*/w","theirs":[]})"), HasSubstr("a name or several"));
  EXPECT_THAT(refuse(R"({"ours":"*/w","theirs":"w","transposed":true})"), HasSubstr("rows"));
  EXPECT_THAT(refuse(R"({"ours":"*/w","theirs":"w","row":2})"), HasSubstr("rows"));
  EXPECT_THAT(refuse(R"({"ours":"*/w","theirs":"w","rows":4})"),
              HasSubstr("0/w has 6 elements, which are not so many of 4 rows"));
  EXPECT_THAT(refuse(R"({"ours":"*/w","theirs":["a","b","c","d"]})"),
              HasSubstr("0/w has 6 elements, which are not 4 tensors alike"));
  EXPECT_THAT(refuse(R"({"ours":"*/w","theirs":["a","b"],"columns":[1]})"),
              HasSubstr("as many as"));
  EXPECT_THAT(refuse(R"({"ours":"*/w","theirs":["a","b"],"columns":[1,2]})"),
              HasSubstr("0/w has 6 elements in 6 columns, and these are 3"));
}

TEST_F(Exchange, UnderOtherNamesEveryBitComesBack) {
  const Checkpoint before = saved("saved");
  const fs::path file = root_ / "theirs.safetensors";
  EXPECT_EQ(export_checkpoint(before, file, true, names_of(kTheirs)).arrays, 4);
  const SafetensorsHeader header = read_safetensors(file);
  for (const char* name :
       {"c1.q.weight", "c1.k.weight", "first.weight", "first.weight:mean", "1.c/bias"})
    EXPECT_NE(header.find(name), nullptr) << name;
  EXPECT_EQ(header.tensors.size(), 5U);
  EXPECT_THAT(header.find("c1.k.weight")->shape, ElementsAre(1, 2));
  Exchanged exchanged;
  import_checkpoint(file, before, root_ / "back", exchanged, names_of(kTheirs));
  EXPECT_EQ(exchanged.arrays, 4);
  EXPECT_EQ(exchanged.kept, 0);
  expect_same(before, Checkpoint::open(root_ / "back"));
  // What has other names is not taken for a checkpoint of arrays of these names.
  EXPECT_THAT(test::refusal([&] {
                import_checkpoint(file, std::nullopt, root_ / "alone", exchanged);
              }).what(),
              HasSubstr("--like"));
}

TEST_F(Exchange, NamesThatDoNotFitTheFileNameTheParameter) {
  const Checkpoint like = saved("saved");
  const fs::path file = root_ / "theirs.safetensors";
  const auto refuse = [&](const std::string& written, const std::string& read) {
    Exchanged exchanged;
    const InputError error = test::refusal([&] {
      export_checkpoint(like, file, false, names_of(written));
      import_checkpoint(file, like, root_ / "back", exchanged, names_of(read));
    });
    test::expect_one_line(error);
    EXPECT_FALSE(fs::exists(root_ / "back"));
    return std::string(error.what());
  };
  EXPECT_THAT(refuse(R"({"ours":"1.c/wight","theirs":"w"})", ""),
              HasSubstr("did you mean \"1.c/weight\""));
  EXPECT_THAT(refuse(R"({"ours":"1.c/*","theirs":"w"})", ""),
              HasSubstr("/1.c/weight: would be w in the file, as 1.c/bias is"));
  EXPECT_THAT(refuse(kTheirs, R"({"ours":"1.c/weight","theirs":["c1.q.weight","v"]})"),
              HasSubstr("has c1.q.weight and not v, which are both parts of 1.c/weight"));
  EXPECT_THAT(refuse(kTheirs, R"({"ours":"*.c/weight","theirs":["c{1}.q.weight","c{1}.k.weight"],)"
                              R"("rows":2},{"ours":"0.a b/*","theirs":"first.{1}"})"),
              HasSubstr("/c1.q.weight: has the shape [1, 2], and by the names [2, 1]"));
  EXPECT_THAT(refuse(kTheirs, R"({"ours":"1.c/weight","theirs":["c1.q.weight","c1.k.weight"]})"),
              HasSubstr("/first.weight: is no array of"));
}

}  // namespace safetensors_test
}  // namespace pipewright::exec
