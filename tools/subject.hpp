// What simulate, check and run are asked about: a plan, a job with a tuned plan, an order (CSV or
// JSON), or a schedule of the registry, with its costs and its policy. The flags that name it are
// the same everywhere.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/costs.hpp"
#include "core/lower.hpp"
#include "core/order.hpp"
#include "core/plan.hpp"
#include "core/program.hpp"
#include "planner/schedules/registry.hpp"
#include "planner/synthesis/synthesis.hpp"
#include "tools/arguments.hpp"
#include "tools/session.hpp"

namespace pipewright::tools {

/// The reader's question decides the policy where the user names none (docs/cli.md).
enum class Purpose { Predict, Judge };

struct Subject {
  std::string title;   // "1f1b  p=4 m=8"
  std::string source;  // where it was read: a file, or "--schedule 1f1b"
  Order order;
  Program program;
  LowerOptions lowering;  // with which `program` came from `order`
  CostTable costs;
  std::string costs_text;  // "F 1.00 ms  I 1.00 ms  W 1.00 ms"
  Bytes memory_limit;      // per rank; 0: none
  std::string policy_text;
  std::vector<std::string> problems;  // of a whole order; such a Program is not read
  std::optional<Plan> plan;
  /// Of --schedule only.
  const planner::Schedule* schedule = nullptr;
  planner::ScheduleRequest request;
  std::optional<planner::SynthesisResult> synthesis;  // of --schedule auto
  /// Of an order that Purpose::Judge reads, and neither a flag nor its schedule names a policy:
  /// `program` has the default one.
  bool names_no_policy = false;
  bool uniform_costs = false;  // from --cost, or assumed, and the same for all stages
};

/// FILE, and the flags of the groups "What to read", "Costs" and "Communication".
Positional subject_file();
std::vector<Flag> subject_flags();
std::vector<Flag> schedule_flags();
std::vector<Flag> cost_flags();
std::vector<Flag> policy_flags();

/// `session` shows the progress of --schedule auto.
Subject read_subject(const Arguments& arguments, Purpose purpose, Session& session);
/// A plan that is already there; `source` names where it comes from.
Subject subject_of_plan(Plan plan, const std::string& source, const Arguments& arguments);

/// --schedule's sizes; `name` may come from elsewhere (`compare gpipe 1f1b`).
planner::ScheduleRequest schedule_request(const Arguments& arguments,
                                          const planner::Schedule& schedule);
/// --cost and --mem for a schedule that plans by them, one value for each of its stages.
void add_costs(planner::ScheduleRequest& request, const planner::Schedule& schedule,
               const Arguments& arguments);
/// --preset and the flags that change a field of it. `base` where no preset is named.
CommPolicy policy_from(const Arguments& arguments, const CommPolicy& base);
bool names_policy(const Arguments& arguments);
/// "torch-gloo (stream, edge, early, rendezvous)".
std::string policy_text(const CommPolicy& policy);
/// --cost and --mem, where no flag says otherwise assumed.
struct GivenCosts {
  CostTable table;
  Bytes memory_limit;
  bool assumed = false;  // no --cost
};
GivenCosts given_costs(const Arguments& arguments, int stages);
/// --message-bytes, if given: the size of every activation and gradient.
void use_message_bytes(CostTable& costs, const Arguments& arguments);
std::string costs_text(const CostTable& costs);
/// True if all stages have the same times.
bool same_for_all(const CostTable& costs);

}  // namespace pipewright::tools
