// What simulate, check and run are asked about: a plan, a job with a tuned plan, an order (CSV or
// JSON), or a schedule of the registry, with its costs and its policy. The flags that name it are
// the same everywhere.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "core/costs/costs.hpp"
#include "core/order/comm_policy_text.hpp"
#include "core/order/order.hpp"
#include "core/plan/plan.hpp"
#include "core/program/lower.hpp"
#include "core/program/program.hpp"
#include "planner/schedules/registry.hpp"
#include "planner/synthesis/synthesis.hpp"
#include "tools/cli/arguments.hpp"
#include "tools/cli/session.hpp"

namespace pipewright::tools {

/// The reader's question decides the policy where the user names none (docs/cli.md).
enum class Purpose { Predict, Judge };

/// A file that holds an order and nothing else.
struct OrderAlone {};
/// --schedule, except auto. `request` has the sizes and, for a schedule that plans by them, the
/// costs.
struct NamedSchedule {
  const planner::Schedule* schedule = nullptr;
  planner::ScheduleRequest request;
};
/// What a command was given, with what only that kind of it brings. `--schedule auto` brings what
/// its search found, and how good that is.
using Given = std::variant<OrderAlone, Plan, NamedSchedule, planner::SynthesisResult>;

struct Subject {
  std::string title;   // "1f1b  p=4 m=8"
  std::string source;  // where it was read: a file, or "--schedule 1f1b"
  Order order;
  LowerOptions lowering;  // with which `program` came from `order`
  Program program;
  CostTable costs;
  std::string costs_text;             // "F 1.00 ms  I 1.00 ms  W 1.00 ms"
  Bytes memory_limit;                 // per rank; 0: none
  std::vector<std::string> problems;  // of a whole order; such a Program is not read
  Given given;

  /// nullptr unless a plan was given.
  const Plan* plan() const { return std::get_if<Plan>(&given); }
};

/// FILE, and the flags of the groups "What to read", "Costs" and "Communication".
Positional subject_file();
std::vector<Flag> subject_flags();
std::vector<Flag> schedule_flags();
std::vector<Flag> cost_flags();
/// --costs: of what has ranks and replicas, not of stages alone.
Flag action_times_flag();
std::vector<Flag> policy_flags();

/// `session` shows the progress of --schedule auto.
Subject read_subject(const Arguments& arguments, Purpose purpose, Session& session);
/// Of this file, whichever the command's words name.
Subject read_subject_file(const std::string& path, const Arguments& arguments, Purpose purpose,
                          Session& session);
/// A plan that is already there; `source` names where it comes from.
Subject subject_of_plan(Plan plan, const std::string& source, const Arguments& arguments);

/// Its source, costs and policy, a line each.
std::vector<std::string> lines_about(const Subject& subject);

/// planner::schedule_meant(), with a note where a job means another one by this name.
const planner::Schedule& named_schedule(const std::string& name, Session& session);
/// Throws InputError, "FLAG WHY", if one of the flags is given.
void refuse_flags(const Arguments& arguments, const std::vector<Flag>& flags,
                  const std::string& why);
/// Whose costs --cost and --mem are: of a stage, or of all that a rank does for one micro-batch,
/// which is cut into its stages. --rank-cost and --rank-mem are always those of a rank.
enum class CostsOf { Stages, Ranks };
/// --schedule's sizes; `name` may come from elsewhere (`compare gpipe 1f1b`).
planner::ScheduleRequest schedule_request(const Arguments& arguments,
                                          const planner::Schedule& schedule,
                                          CostsOf whose = CostsOf::Stages);
/// Of ranks where the schedule auto is to choose how many stages they have.
CostsOf costs_of(const planner::ScheduleRequest& request);
/// The costs for a schedule that plans by them, those of its stages.
void add_costs(planner::ScheduleRequest& request, const planner::Schedule& schedule,
               const Arguments& arguments);
/// --preset and the flags that change a field of it. `base` where no preset is named.
CommPolicy policy_from(const Arguments& arguments, const CommPolicy& base);
bool names_policy(const Arguments& arguments);
/// sim::judged_policy(), where no flag says it.
CommPolicy judged_policy(const Order& order, CommPolicy policy, const Arguments& arguments);
/// --cost and --mem, or --rank-cost and --rank-mem, for the placement's stages; F = I = W = 1 ms is
/// assumed where no flag gives times. --collectives: ranks sit on the cluster's devices one after
/// the other, each on so many.
struct GivenCosts {
  CostTable table;
  Bytes memory_limit;
};
GivenCosts given_costs(const Arguments& arguments, const Placement& placement,
                       CostsOf whose = CostsOf::Stages, int devices_of_rank = 1);
/// These flags and --message-bytes: what they name changes in `costs`, the placement's stages; all
/// else stays. Returns the limit of --mem (0: none).
Bytes use_cost_flags(CostTable& costs, const Arguments& arguments, const Placement& placement,
                     CostsOf whose = CostsOf::Stages);
std::string costs_text(const CostTable& costs);
/// " (assumed: …)" with the times that neither a flag nor a plan gives; else "".
std::string assumed_text(const Arguments& arguments);
/// True if all stages have the same times, and no action has one of its own.
bool same_for_all(const CostTable& costs);

}  // namespace pipewright::tools
