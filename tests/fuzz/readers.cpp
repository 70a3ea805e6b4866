#include "tests/fuzz/readers.hpp"

#include <algorithm>

#include "core/base/error.hpp"
#include "core/base/little_endian.hpp"
#include "core/base/pickle.hpp"
#include "core/base/plain_text.hpp"
#include "core/base/units.hpp"
#include "core/cluster/paddle.hpp"
#include "core/costs/action_times.hpp"
#include "core/costs/collective_fit.hpp"
#include "core/costs/cost_text.hpp"
#include "core/order/cells.hpp"
#include "core/order/comm_policy.hpp"
#include "core/order/order.hpp"
#include "core/order/problems.hpp"
#include "core/plan/measured_steps.hpp"
#include "core/plan/paddle_tuner_job.hpp"
#include "core/spmd/capture/capture.hpp"
#include "core/spmd/graph/explanation.hpp"
#include "core/spmd/graph/graph_json.hpp"
#include "core/spmd/inference_cases.hpp"
#include "core/spmd/placement_cases.hpp"
#include "core/spmd/reshard_cases.hpp"
#include "exec/base/packing.hpp"
#include "exec/checkpoint/array_names.hpp"
#include "exec/checkpoint/checkpoint_json.hpp"
#include "exec/checkpoint/safetensors.hpp"
#include "exec/data/npy.hpp"
#include "exec/spmd/state_description.hpp"
#include "planner/graph_partition/instance.hpp"
#include "planner/graph_partition/pipedream_profile.hpp"
#include "sim/dumps/explanation_text.hpp"
#include "sim/what_if/change.hpp"
#include "tests/fuzz/door.hpp"
#include "tests/support/sample_documents.hpp"
#include "tools/input/run_log.hpp"
#include "tools/input/trace_program.hpp"
#include "tools/measuring/command_template.hpp"
#include "tools/measuring/output_reader.hpp"
#include "tools/measuring/trial_record.hpp"
#include "tools/running/search_journal.hpp"
#include "traces/analysis/action_costs.hpp"
#include "traces/chrome/gzip.hpp"
#include "traces/chrome/join_ranks.hpp"
#include "traces/chrome/read_trace.hpp"
#include "traces/logs/megatron_timers.hpp"
#include "traces/logs/rank_times.hpp"

namespace pipewright::test {
namespace {

/// A document that sample_documents.hpp knows: read, and written again.
template <const char* kKind>
void read_document(std::string_view bytes) {
  read_text_as(kKind, bytes);
}

template <class Read>
void with_cursor(std::string_view bytes, Read read) {
  const Json document = parse_json(bytes, "fuzz.json");
  read(JsonCursor(document, "fuzz.json"));
}

void read_order_rows(std::string_view bytes) {
  const Order order = read_order_csv(bytes, "fuzz.csv");
  (void)problems_of(order);
}

void read_array(std::string_view bytes) {
  const exec::NpyArray array = exec::parse_npy(bytes, "fuzz.npy");
  (void)exec::floats_of(array, 0, array.elements());
  if (array.is_whole_numbers()) (void)exec::integer_range(array);
}

/// The flags' small languages, one a line: costs, memory, sizes, policies' words.
void read_words(std::string_view bytes) {
  const auto end = bytes.find('\n');
  const std::string_view first = bytes.substr(0, end);
  const std::string_view second = end == bytes.npos ? "" : bytes.substr(end + 1);
  CostTable table = parse_costs(first, 3);
  (void)parse_memory(second, table);
}

void read_units(std::string_view bytes) {
  const std::string_view rest = bytes.empty() ? bytes : bytes.substr(1);
  switch (bytes.empty() ? 0 : bytes.front() % 4) {
    case 0:
      (void)parse_duration(rest, "fuzz");
      break;
    case 1:
      (void)parse_bytes(rest, "fuzz");
      break;
    case 2:
      (void)parse_bandwidth(rest, "fuzz");
      break;
    default:
      CallTable calls;
      (void)parse_cells(rest, calls);
  }
}

/// Changes, and the same again from their text.
void read_changes(std::string_view bytes) {
  const std::vector<sim::Change> changes = sim::parse_changes(bytes, "fuzz");
  (void)sim::in_words(changes);
  PIPEWRIGHT_ASSERT(sim::parse_changes(sim::to_string(changes), "fuzz") == changes,
                    "a change is read as it is written");
}

/// Cases of SPMD rules: read, and each answered.
void read_spmd_cases(std::string_view bytes) {
  with_cursor(bytes, [](const JsonCursor& root) {
    for (const spmd::InferenceCase& one : spmd::read_inference_cases(root)) {
      (void)to_json(spmd::answer_to(one), one.call.mesh);
    }
  });
}

/// Reshards, each with its cheapest steps.
void read_spmd_reshards(std::string_view bytes) {
  with_cursor(bytes, [](const JsonCursor& root) {
    for (const spmd::ReshardCase& one : spmd::read_reshard_cases(root)) {
      (void)answer_to(one, spmd::cheapest_reshard(one.shape, one.from, one.to));
    }
  });
}

/// A graph, completed, and again from what it became.
void complete_spmd_graph(std::string_view bytes) {
  with_cursor(bytes, [](const JsonCursor& root) {
    const spmd::Completion once = spmd::completed(spmd::read_graph(root));
    const Json text = to_json(once);
    const Json again = to_json(spmd::completed(spmd::read_graph(JsonCursor(text, "again"))));
    PIPEWRIGHT_ASSERT(again == text, "a completed graph completes to itself");
  });
}

/// What a saved state of a graph consists of, its parts, and read again as it is written.
void read_graph_state(std::string_view bytes) {
  with_cursor(bytes, [](const JsonCursor& root) {
    const auto state = exec::graphs::read_state_description(root);
    for (const auto& array : state.arrays) (void)exec::graphs::written_parts(array);
    const Json text = to_json(state);
    const Json again = to_json(exec::graphs::read_state_description(JsonCursor(text, "again")));
    PIPEWRIGHT_ASSERT(again == text, "a saved state is read as it is written");
  });
}

/// A model, captured, and its graph read again.
void capture_onnx(std::string_view bytes) {
  const onnx::Model model = onnx::parse_model(bytes, "fuzz.onnx");
  const spmd::capture::CaptureOptions options{.dimensions = {{"batch", 4}}};
  const Json graph = to_json(spmd::capture::captured(model, "fuzz.onnx", options).graph);
  const Json again = to_json(spmd::read_graph(JsonCursor(graph, "again")));
  PIPEWRIGHT_ASSERT(again == graph, "a captured graph is read as it is written");
}

/// Layers on meshes and clusters to be cut.
void read_spmd_layers(std::string_view bytes) {
  with_cursor(bytes, [](const JsonCursor& root) {
    for (const spmd::LayerCase& one : spmd::read_layer_cases(root)) (void)answer_to(one);
    (void)spmd::cluster_answers(root);
  });
}

/// Files of ranks, one after the other with a line "---" between them: joined, and each step made a
/// Program, an order and costs.
void read_rank_traces(std::string_view bytes) {
  constexpr std::string_view kBetween = "\n---\n";
  std::vector<std::vector<traces::TraceTimeline>> files;
  for (std::size_t number = 0; number < 8; ++number) {
    const auto end = bytes.find(kBetween);
    files.push_back(
        traces::parse_trace_steps(bytes.substr(0, end), "rank" + std::to_string(number) + ".json"));
    if (end == bytes.npos) break;
    bytes.remove_prefix(end + kBetween.size());
  }
  for (const traces::JoinedTrace& step : traces::join_steps(std::move(files))) {
    const tools::TraceProgram read = tools::program_of_trace(step.trace);
    (void)tools::order_of_trace(step.trace, "a test");
    (void)traces::action_costs(read.program, read.timeline);
  }
}

/// Files of Chakra of the ranks of a job, each with its length in two bytes in front, the lower
/// first: as read_rank_traces().
void read_chakra(std::string_view bytes) {
  std::vector<traces::ChakraTrace> ranks;
  while (bytes.size() > 2 && ranks.size() < 8) {
    const auto size = static_cast<std::size_t>(little_endian(bytes.substr(0, 2)));
    const int rank = static_cast<int>(ranks.size());
    ranks.push_back(traces::parse_chakra(bytes.substr(2, size), "fuzz.et", rank));
    bytes.remove_prefix(std::min(bytes.size(), size + 2));
  }
  if (ranks.empty()) throw InputError("fuzz.et", "", "has no rank");
  for (const traces::JoinedTrace& step : traces::join_steps(traces::chakra_steps(ranks)))
    (void)tools::program_of_trace(step.trace);
}

/// Flight Recorder dumps of the ranks of a job, with a line "---" between them: why it hangs.
void read_dumps(std::string_view bytes) {
  constexpr std::string_view kBetween = "\n---\n";
  std::vector<sim::Dump> dumps;
  for (std::int64_t rank = 0; rank < 8; ++rank) {
    const auto end = bytes.find(kBetween);
    dumps.push_back(sim::read_dump(bytes.substr(0, end), "fuzz", RankId(rank)));
    if (end == bytes.npos) break;
    bytes.remove_prefix(end + kBetween.size());
  }
  (void)sim::to_json(sim::explain(sim::join_dumps(std::move(dumps))));
}

/// A pattern in the first line, and output to read with it.
void read_run_output(std::string_view bytes) {
  const auto end = bytes.find('\n');
  const std::vector<tools::OutputPattern> patterns{
      tools::read_output_pattern(std::string(bytes.substr(0, end)))};
  tools::OutputReader reader(patterns);
  if (end != bytes.npos) reader.read(bytes.substr(end + 1));
  (void)reader.finish();
}

/// What ranks tell one another: lists with their lengths in front.
void read_packed(std::string_view bytes) {
  exec::Unpacker unpacker(std::as_bytes(std::span(bytes)));
  while (!unpacker.empty()) {
    (void)unpacker.get_text();
    (void)unpacker.get_all<std::int64_t>();
    (void)unpacker.get<std::uint32_t>();
  }
}

constexpr char kModel[] = "model", kCluster[] = "cluster", kProfile[] = "profile", kPlan[] = "plan",
               kOrder[] = "order", kJob[] = "job", kArchitecture[] = "architecture",
               kFramework[] = "framework", kGraph[] = "graph";

/// As a file that grows: in two pieces.
void read_run_log(std::string_view bytes) {
  tools::RunLogLines lines("fuzz.log");
  lines.add(bytes.substr(0, bytes.size() / 2));
  lines.add(bytes.substr(bytes.size() / 2));
  lines.require_sound();
}

}  // namespace

const std::vector<Reader>& readers() {
  static const std::vector<Reader> all = {
      {kModel, read_document<kModel>},
      {kCluster, read_document<kCluster>},
      {kProfile, read_document<kProfile>},
      {kPlan, read_document<kPlan>},
      {kOrder, read_document<kOrder>},
      {kJob, read_document<kJob>},
      {kArchitecture, read_document<kArchitecture>},
      {kFramework, read_document<kFramework>},
      {kGraph, read_document<kGraph>},
      {"order_csv", read_order_rows},
      {"trace", [](std::string_view bytes) { (void)traces::parse_trace(bytes, "fuzz.json"); }},
      {"nsight", [](std::string_view bytes) { (void)traces::parse_trace(bytes, "fuzz.sqlite"); }},
      {"rank_traces", read_rank_traces},
      {"chakra", read_chakra},
      {"timers",
       [](std::string_view bytes) {
         for (const auto& print : traces::read_megatron_timers(bytes, "fuzz.log"))
           (void)traces::stage_times_of(traces::rank_times_of(print, "fuzz.log"), 1);
       }},
      {"run_log", read_run_log},
      {"pickle", [](std::string_view bytes) { (void)parse_pickle(bytes, "fuzz"); }},
      {"dumps", read_dumps},
      {"onnx", capture_onnx},
      {"journal",
       [](std::string_view bytes) {
         (void)tools::read_journal(bytes, R"({"schema":"pipewright.journal/2"})", "fuzz");
       }},
      {"launch_command",
       [](std::string_view bytes) {
         (void)tools::filled(tools::read_command_template(bytes),
                             [](const std::string& name) { return name; });
       }},
      {"run_output", read_run_output},
      {"trial_record",
       [](std::string_view bytes) { (void)tools::text_of(tools::read_trial_record(bytes)); }},
      {"measured_steps",
       [](std::string_view bytes) {
         with_cursor(bytes, [](const JsonCursor& root) {
           Json again;
           put_measured_steps(read_measured_steps(root), again);
         });
       }},
      {"checkpoint",
       [](std::string_view bytes) {
         with_cursor(bytes,
                     [](const JsonCursor& root) { (void)exec::read_checkpoint_manifest(root); });
       }},
      {"names",
       [](std::string_view bytes) {
         with_cursor(bytes, [](const JsonCursor& root) {
           (void)exec::ArrayNames::read(root).of("1.block 0/0.attend/qkv_weight", 12288);
         });
       }},
      {"safetensors",
       [](std::string_view bytes) {
         (void)exec::parse_safetensors(bytes, static_cast<std::int64_t>(bytes.size()), "fuzz");
       }},
      {"npy", read_array},
      {"collectives",
       [](std::string_view bytes) {
         (void)leave_each_size_out(read_collective_text(bytes, "fuzz", 8));
       }},
      {"action_times",
       [](std::string_view bytes) {
         (void)write_action_times_csv(read_action_times_csv(bytes, "fuzz.csv"));
       }},
      {"spmd_cases", read_spmd_cases},
      {"spmd_graphs", complete_spmd_graph},
      {"graph_states", read_graph_state},
      {"spmd_layers", read_spmd_layers},
      {"spmd_reshards", read_spmd_reshards},
      {"paddle_cluster",
       [](std::string_view bytes) {
         with_cursor(bytes, [](const JsonCursor& root) { (void)read_paddle_cluster(root); });
       }},
      {"paddle_tuner",
       [](std::string_view bytes) {
         with_cursor(bytes, [](const JsonCursor& root) { (void)read_paddle_tuner_job(root); });
       }},
      {"operator_graph",
       [](std::string_view bytes) {
         with_cursor(bytes,
                     [](const JsonCursor& root) { (void)planner::read_operator_graph(root); });
       }},
      {"pipedream",
       [](std::string_view bytes) {
         with_cursor(bytes,
                     [](const JsonCursor& root) { (void)planner::read_pipedream_profile(root); });
       }},
      {"cost_words", read_words},
      {"units", read_units},
      {"what_if", read_changes},
      {"packed", read_packed},
      {"door", visit_door},
      {"gzip",
       [](std::string_view bytes) { (void)traces::gunzip(bytes, "fuzz.json.gz", 1U << 20U); }},
      {"shown", [](std::string_view bytes) { (void)plain_text(bytes); }},
  };
  return all;
}

bool accepts(const Reader& reader, std::string_view bytes) {
  try {
    reader.read(bytes);
    return true;
  } catch (const InputError&) {
    return false;
  } catch (const RunError&) {
    return false;
  }
}

}  // namespace pipewright::test
