// Documents that are wrong in one place each: the reader names the file and that place, in one
// line, and throws nothing but InputError.
#include <gtest/gtest.h>

#include "tests/support/expect_refusal.hpp"
#include "tests/support/sample_documents.hpp"

namespace pipewright::test {
namespace {

/// A valid sample with the value at `place` replaced ("-" for `value`: taken out).
struct Fault {
  const char* kind;
  const char* sample;
  const char* place;
  const char* value;
  const char* blamed;  // the pointer that the error has to name
};

constexpr Fault kFaults[] = {
    // model
    {"model", "layers", "/schema", "-", ""},
    {"model", "layers", "/schema", R"("pipewright.model/2")", "/schema"},
    {"model", "layers", "/schema", R"("pipewright.plan/1")", "/schema"},
    {"model", "layers", "/schema", "1", "/schema"},
    {"model", "layers", "/name", R"("")", "/name"},
    {"model", "layers", "/name", R"("two\nlines")", "/name"},
    {"model", "layers", "/layers", "{}", "/layers"},
    {"model", "layers", "/layers", "[]", "/layers"},
    {"model", "layers", "/layers/1/layers", "[]", "/layers/1/layers"},
    {"model", "layers", "/layers/0/kind", R"("embeding")", "/layers/0/kind"},
    {"model", "layers", "/layers/0/kind", "-", "/layers/0"},
    {"model", "layers", "/layers/0/vocabulary", "0", "/layers/0/vocabulary"},
    {"model", "layers", "/layers/0/vocabulary", "51", "/layers"},
    {"model", "layers", "/layers/0/positions", "7", "/sequence"},
    {"model", "layers", "/layers/0/heads", "2", "/layers/0/heads"},
    {"model", "layers", "/layers/1/layers/0/layers/1/heads", "5",
     "/layers/1/layers/0/layers/1/heads"},
    {"model", "layers", "/layers/3/in", "13", "/layers/3/in"},
    {"model", "layers", "/layers/3/out", "1048577", "/layers/3/out"},
    {"model", "layers", "/layers/3/out", "49", "/layers"},
    {"model", "layers", "/layers/3/bias", "1", "/layers/3/bias"},
    {"model", "layers", "/loss", R"("cross_entropy")", "/loss"},
    {"model", "layers", "/loss", "-", ""},
    {"model", "layers", "/sequence", "2.5", "/sequence"},
    {"model", "layers", "/bytes_per_element", "3", "/bytes_per_element"},
    {"model", "layers", "/preset", R"("mlp")", "/sequence"},
    {"model", "transformer", "/transformer/heads", "7", "/transformer/heads"},
    {"model", "transformer", "/transformer/layers", "1e9", "/transformer/layers"},
    {"model", "transformer", "/transformer/hiden", "1", "/transformer/hiden"},
    {"model", "transformer", "/transformer", "7", "/transformer"},
    {"model", "preset", "/preset", R"("gpt")", "/preset"},
    {"model", "preset", "/sequence", "4", "/sequence"},
    // cluster
    {"cluster", "full", "/schema", R"("pipewright.cluster/10")", "/schema"},
    {"cluster", "full", "/name", "-", ""},
    {"cluster", "full", "/nodes", "0", "/nodes"},
    {"cluster", "full", "/nodes", "18446744073709551616", "/nodes"},
    {"cluster", "full", "/devices_per_node", "600000", "/devices_per_node"},
    {"cluster", "full", "/device/kind", R"("gpu")", "/device/kind"},
    {"cluster", "full", "/device/memory_bytes", "1e300", "/device/memory_bytes"},
    {"cluster", "full", "/device/peak_flops", "0", "/device/peak_flops"},
    {"cluster", "full", "/inside/latency_ns", "-1", "/inside/latency_ns"},
    {"cluster", "full", "/inside/latency_ns", R"("1us")", "/inside/latency_ns"},
    {"cluster", "full", "/inside/sharing", R"("Fair")", "/inside/sharing"},
    {"cluster", "full", "/inside/bandwidth", "1", "/inside/bandwidth"},
    {"cluster", "full", "/across", "-", ""},
    {"cluster", "network", "/network/kind", R"("tree")", "/network/kind"},
    {"cluster", "network", "/network/rails", "7", "/network/rails"},
    {"cluster", "network", "/network/routing", R"("flows")", "/network/routing"},
    {"cluster", "network", "/network/levels/0/oversubscription", "3",
     "/network/levels/0/oversubscription"},
    {"cluster", "network", "/network/levels/1/uplinks", "-", "/network/levels/1"},
    {"cluster", "network", "/network/levels/2/joins", "1", "/network/levels/2/joins"},
    {"cluster", "network", "/devices", "8", "/network"},
    {"cluster", "cables", "/network/cables/1/to", R"("node 7 port 0")", "/network/cables/1/to"},
    {"cluster", "cables", "/network/cables/1/to", R"("spine")", "/network/cables"},
    {"cluster", "cables", "/inside/sharing", R"("none")", "/inside/sharing"},
    {"cluster", "preset", "/preset", R"("dgx-a200")", "/preset"},
    {"cluster", "preset", "/devices", "12", "/devices"},
    // profile
    {"profile", "full", "/model_name", "[]", "/model_name"},
    {"profile", "full", "/repeats", "0", "/repeats"},
    {"profile", "full", "/cluster/nodes", "null", "/cluster/nodes"},
    {"profile", "full", "/transfer/bytes_per_second", "0", "/transfer/bytes_per_second"},
    {"profile", "full", "/sizes/1/micro_batch_size", "1", "/sizes/1/micro_batch_size"},
    {"profile", "full", "/sizes/0/layers", "[]", "/sizes/0/layers"},
    {"profile", "full", "/sizes/0/layers/1/w_ns", "-", "/sizes/0/layers/1"},
    {"profile", "full", "/sizes/0/loss/w_ns", "1", "/sizes/0/loss/w_ns"},
    {"profile", "full", "/sizes/0/layers/1/b_ns", "0.5", "/sizes/0/layers/1/b_ns"},
    {"profile", "full", "/sizes/0/layers/1/spread/b", "[]", "/sizes/0/layers/1/spread/b"},
    {"profile", "full", "/transfer/issue_ns", "-1", "/transfer/issue_ns"},
    {"profile", "full", "/divided/0/ep", "0", "/divided/0/ep"},
    {"profile", "full", "/divided/0/sizes/0/micro_batch_size", "2", "/divided/0/sizes"},
    // order
    {"order", "transfers", "/schema", R"("pipewright.order/3")", "/schema"},
    {"order", "transfers", "/ranks", "[]", "/ranks"},
    {"order", "transfers", "/ranks", "-", ""},
    {"order", "transfers", "/ranks/1", R"("1F0")", "/ranks/1"},
    {"order", "transfers", "/ranks/0/1", R"("0SNED_F0")", "/ranks/0/1"},
    {"order", "transfers", "/ranks/0/1", R"("0SEND_B0")", "/ranks/0/1"},
    {"order", "transfers", "/ranks/0/1", "7", "/ranks/0/1"},
    {"order", "transfers", "/ranks/0/0", R"("90000F0")", "/ranks"},
    {"order", "transfers", "/rank_of_stage", "[0]", "/rank_of_stage"},
    {"order", "fragment", "/fragment", "7", "/fragment"},
    {"order", "fragment", "/ranks/0/1", R"("(0SEND_F1;0F1)BATCH_P2P")", "/ranks/0/1"},
    {"order", "fragment", "/ranks/0/2", R"("(0SEND_F1;0SEND_B1)BATCH_P2P")", "/ranks/0/2"},
    {"order", "fragment", "/ranks/0/2", R"({"kind": "SEND", "to": 7})", "/ranks/0/2"},
    {"order", "fragment", "/ranks/0/2", R"({"kind": "ALL_REDUCE"})", "/ranks/0/2"},
    {"order", "fragment", "/groups", R"({"g": [0, 7]})", "/groups/g/1"},
    {"order", "fragment", "/ranks/1/1", R"("0F1")", "/ranks/1/1"},
    {"order", "transfers", "/rank_of_stage", "[1, 0]", "/ranks/0/0"},
    {"order", "transfers", "/rank_of_stage/1", "2", "/rank_of_stage/1"},
    {"order", "transfers", "/rank_of_stage/1", "[1]", "/rank_of_stage/1"},
    {"order", "transfers", "/rank_of_stages", "[0, 1]", "/rank_of_stages"},
    {"order", "replicas", "/rank_of_stage/1", "[1]", "/rank_of_stage/1"},
    {"order", "replicas", "/rank_of_stage/1/0", "-1", "/rank_of_stage/1/0"},
    {"order", "replicas", "/rank_of_stage/1/0", "0", "/ranks/1/0"},
    // graph
    {"graph", "annotated", "/schema", R"("pipewright.graph/2")", "/schema"},
    {"graph", "annotated", "/meshes", "{}", "/meshes"},
    {"graph", "annotated", "/meshes/left/ranks", "[0, 1, 2]", "/meshes/left"},
    {"graph", "annotated", "/meshes/left/ranks/1", "0", "/meshes/left"},
    {"graph", "annotated", "/tensors/x/shape/0", "0", "/tensors/x/shape/0"},
    {"graph", "annotated", "/tensors/x/shape/1", "7", "/operators/0"},
    {"graph", "annotated", "/tensors/x/type", R"("real")", "/tensors/x/type"},
    {"graph", "annotated", "/tensors/x/annotation/mesh", R"("middle")",
     "/tensors/x/annotation/mesh"},
    {"graph", "annotated", "/tensors/x/annotation/placements", R"(["S0"])",
     "/tensors/x/annotation/placements"},
    {"graph", "annotated", "/tensors/x/annotation/placements/0", R"("S2")",
     "/tensors/x/annotation/placements"},
    {"graph", "annotated", "/tensors/w/annotation/dims_mapping", "[1, 1]", "/tensors/w/annotation"},
    {"graph", "annotated", "/tensors/w/annotation/dims_mapping", "[-1]",
     "/tensors/w/annotation/dims_mapping"},
    {"graph", "annotated", "/tensors/a/annotation/partial", R"({"9": "sum"})",
     "/tensors/a/annotation/partial"},
    {"graph", "annotated", "/tensors/h/shape/1", "9", "/operators/0"},
    {"graph", "annotated", "/operators/0/rule", R"("matmull")", "/operators/0/rule"},
    {"graph", "annotated", "/operators/0/inputs/0", R"("y")", "/operators/0/inputs/0"},
    {"graph", "annotated", "/operators/0/inputs/0", "null", "/operators/0/inputs"},
    {"graph", "annotated", "/operators/1/name", R"("product")", "/operators/1/name"},
    {"graph", "annotated", "/operators/1/outputs/0", R"("h")", "/operators/1/outputs"},
    {"graph", "annotated", "/operators/1/inputs/0", R"("d")", "/operators"},
    {"graph", "annotated", "/operators/0/annotation/inputs", "[null]",
     "/operators/0/annotation/inputs"},
    {"graph", "annotated", "/operators/2/annotation/process_mesh", R"("middle")",
     "/operators/2/annotation/process_mesh"},
    {"graph", "annotated", "/operators/2/attributes/0", "[4, 4, 4]", "/operators/2"},
    // plan
    {"plan", "full", "/schema", R"("pipewright.plan/0")", "/schema"},
    {"plan", "full", "/model/transformer/ffn", "0", "/model/transformer/ffn"},
    {"plan", "full", "/mesh/shape/0", "3", "/mesh/devices"},
    {"plan", "full", "/mesh/dim_names/0", R"("mp")", "/mesh/dim_names/0"},
    {"plan", "full", "/mesh/devices/1", "9", "/mesh/devices/1"},
    {"plan", "full", "/micro_batches", "0", "/micro_batches"},
    {"plan", "full", "/micro_batch_size", "true", "/micro_batch_size"},
    {"plan", "full", "/stages", "[]", "/stages"},
    {"plan", "full", "/stages/0/layers/0", "1", "/stages/0/layers/0"},
    {"plan", "full", "/stages/1/rank", "65536", "/stages/1/rank"},
    {"plan", "full", "/schedule/name", "null", "/schedule/name"},
    {"plan", "full", "/schedule/chunks", "3", "/schedule/chunks"},
    {"plan", "full", "/schedule/parameters/group", "2", "/schedule/parameters/group"},
    {"plan", "full", "/schedule/order/1/0", R"("1F9")", "/schedule/order/1/0"},
    {"plan", "full", "/schedule/order/1/0", R"("1F99999999999999999999")", "/schedule/order/1/0"},
    {"plan", "full", "/schedule/order/1/0", R"("F")", "/schedule/order/1/0"},
    {"plan", "full", "/schedule/order/1", "-", "/schedule/order"},
    {"plan", "full", "/policy/protocol", R"("eager")", "/policy/protocol"},
    {"plan", "full", "/policy/post", R"("late")", "/policy/post"},
    {"plan", "full", "/policy/send_f", R"("eager:0")", "/policy/send_f"},
    {"plan", "full", "/costs/stages/0/f_ns", "1e20", "/costs/stages/0/f_ns"},
    {"plan", "full", "/costs/stages/1", "-", "/costs/stages"},
    {"plan", "full", "/costs/memory/0/constant_bytes", "-1", "/costs/memory/0/constant_bytes"},
    {"plan", "full", "/costs/gradient_bytes", "[1, 2, 3]", "/costs/gradient_bytes"},
    {"plan", "full", "/costs/links/0/bytes_per_second", "0", "/costs/links/0/bytes_per_second"},
    {"plan", "full", "/costs/routes/0/links/0", "1", "/costs/routes/0/links/0"},
    {"plan", "full", "/predicted/bubble_ratio", "1.5", "/predicted/bubble_ratio"},
    {"plan", "full", "/executable/cpu", "true", "/executable/cpu"},
    {"plan", "full", "/training/optimizer", R"("adam")", "/training/optimizer"},
    {"plan", "full", "/tuner/seed", "-1", "/tuner/seed"},
    {"plan", "full", "/tuner/reasons/0", "{}", "/tuner/reasons/0"},
    // job
    {"job", "flat", "/schema", "-", ""},
    {"job", "flat", "/model", R"("nowhere/model.json")", "/model"},
    {"job", "flat", "/cluster/preset", "-", "/cluster/devices"},
    {"job", "flat", "/global_batch", "0", "/global_batch"},
    {"job", "flat", "/global_batch", "-", ""},
    {"job", "flat", "/strategy", "[]", "/strategy"},
    {"job", "flat", "/strategy/schedule_mode/0", "1", "/strategy/schedule_mode/0"},
    {"job", "flat", "/strategy/comm_policy", R"("nccl")", "/strategy/comm_policy"},
    {"job", "flat", "/strategy/comm_policy/preset", R"("torsh")", "/strategy/comm_policy/preset"},
    {"job", "flat", "/auto_mode", R"("semy")", "/auto_mode"},
    {"job", "flat", "/tuner_load_path", "7", "/tuner_load_path"},
    {"job", "flat", "/tunner_load_path", R"("x")", "/tunner_load_path"},
    {"job", "flat", "/training/learning_rate", "-1", "/training/learning_rate"},
    {"job", "flat", "/training/steps", "0", "/training/steps"},
    {"job", "flat", "/training/data", "7", "/training/data"},
    {"job", "paddle", "/training/data/labels", R"("y.txt")", "/training/data/labels"},
    {"job", "paddle", "/training/data/targets", R"("t.npy")", "/training/data/targets"},
    {"job", "paddle", "/training/data/inputs", "-", "/training/data"},
    {"job", "paddle", "/strategy/pp_degree", "2", "/strategy/pipeline/pp_degree"},
    {"job", "paddle", "/strategy/sharding_degree", "0", "/strategy/sharding_degree"},
    {"job", "paddle", "/strategy/pipeline/split_backward", "true",
     "/strategy/pipeline/split_backward"},
    {"job", "paddle", "/strategy/pipeline/accumulate_steps", "3", "/global_batch"},
};

Json sample(const std::string& kind, const std::string& name) {
  for (const Sample& one : sample_documents()) {
    if (one.kind == kind && one.name == name) {
      return one.document;
    }
  }
  throw std::logic_error("no such sample");
}

Json broken(const Fault& fault) {
  Json document = sample(fault.kind, fault.sample);
  const Json::json_pointer place(fault.place);
  if (std::string(fault.value) != "-") {
    document[place] = Json::parse(fault.value);
    return document;
  }
  Json& parent = document.at(place.parent_pointer());
  if (parent.is_array()) {
    parent.erase(static_cast<std::size_t>(std::stoul(place.back())));
  } else {
    parent.erase(place.back());
  }
  return document;
}

TEST(MalformedDocuments, AreRefusedAtTheirPlace) {
  static_assert(std::size(kFaults) >= 100);
  for (const Fault& fault : kFaults) {
    SCOPED_TRACE(std::string(fault.kind) + " " + fault.place + " = " + fault.value);
    const Json document = broken(fault);
    const InputError error = refusal([&] { read_as(fault.kind, document); });
    EXPECT_EQ(error.file(), "sample.json");
    EXPECT_EQ(error.pointer(), fault.blamed) << error.what();
    expect_one_line(error);
  }
}

struct BadText {
  const char* what;
  std::string text;
};

std::vector<BadText> bad_texts(const std::string& valid) {
  const std::string tag = valid.substr(0, valid.find(','));  // {"schema": "…"
  const std::string deep = std::string(100'000, '[');
  return {{"empty", ""},
          {"blank", " \n\t"},
          {"cut in the middle", valid.substr(0, valid.size() / 2)},
          {"last bracket missing", valid.substr(0, valid.rfind('}'))},
          {"text after the end", valid + "{}"},
          {"a key twice", tag + "," + tag.substr(1) + "}"},
          {"nested without end", "{\"model\": " + deep},
          {"nested deeply", "{\"model\": " + std::string(300, '[') + std::string(300, ']') + "}"},
          {"not a number", tag + R"(, "global_batch": NaN})"},
          {"infinite", tag + R"(, "global_batch": Infinity})"},
          {"number without end", tag + ", \"global_batch\": " + std::string(5000, '9') + "e}"},
          {"too large a float", tag + R"(, "global_batch": 1e9999})"},
          {"bad UTF-8", tag + ", \"name\": \"\xff\xfe\"}"},
          {"cut UTF-8", tag + ", \"name\": \"\xe2\x82\"}"},
          {"lone surrogate", tag + R"(, "name": "\ud800"})"},
          {"a zero byte", tag + std::string(", \"name\": \"\0\"}", 14)},
          {"a comment", "// plan\n" + valid},
          {"single quotes", "{'schema': 1}"},
          {"not an object", "[1, 2]"},
          {"a number alone", "42"},
          {"a string alone", "\"plan\""},
          {"null", "null"},
          {"binary", std::string("\x80\x04\x95\x00\x00", 5)},
          {"UTF-16", std::string("\xff\xfe{\0}\0", 6)}};
}

TEST(MalformedDocuments, TextThatIsNoDocument) {
  for (const Sample& one : sample_documents()) {
    for (const BadText& bad : bad_texts(one.document.dump())) {
      SCOPED_TRACE(one.kind + ", " + one.name + ": " + bad.what);
      const InputError error = refusal([&] { read_text_as(one.kind, bad.text); });
      EXPECT_EQ(error.file(), "sample.json");
      expect_one_line(error);
    }
  }
}

}  // namespace
}  // namespace pipewright::test
