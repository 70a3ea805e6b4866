// The Python module: thin bindings, a source for each subject. What they do lies in the libraries.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/base/json.hpp"
#include "core/costs/costs.hpp"
#include "core/order/comm_policy.hpp"
#include "core/order/order.hpp"
#include "core/plan/plan.hpp"

namespace nb = nanobind;

namespace pipewright::python {

/// An order with what is known of where it comes from.
struct GivenOrder {
  Order order;
  bool fragment = false;
  std::vector<std::string> problems;  // an order with problems is not run
  std::string title;                  // "1f1b: p=4 m=8"
  std::string preset;                 // the policy that its schedule is about; "": none
};

/// A plan with the title that the command prints.
struct GivenPlan {
  Plan plan;
  std::string title;
};
GivenPlan given_plan(Plan plan);

/// A preset's name, or a policy.
using PolicyWord = std::variant<std::string, CommPolicy>;
CommPolicy policy_of(const PolicyWord& word);

/// Costs in the words of the command's flags --cost, --mem and --message-bytes.
struct CostWords {
  std::optional<std::string> cost, mem, message_bytes;
};
struct GivenCosts {
  CostTable table;
  Bytes memory_limit;  // of a rank; 0: none
};
/// The assumed costs, changed by the words.
GivenCosts costs_of(const CostWords& words, int stages);
/// A table changed by the words.
GivenCosts changed_costs(CostTable table, const CostWords& words);

/// Runs Python's signal handlers, from a thread without the GIL; throws what they raise
/// (KeyboardInterrupt).
void heed_signals();

/// Dicts, lists, numbers and strings.
nb::object to_python(const Json& value);
/// Of the same; tuples are lists. Throws InputError, which calls it by the name, for anything else.
Json from_python(nb::handle value, const std::string& name, const std::string& pointer = "");

// Each adds its part to the module.
void bind_errors();
void bind_explanations(nb::module_& module);
void bind_measured(nb::module_& module);
void bind_models(nb::module_& module);
void bind_orders(nb::module_& module);
void bind_plans(nb::module_& module);
void bind_policies(nb::module_& module);
void bind_pytorch(nb::module_& module);
void bind_searches(nb::module_& module);
void bind_verdicts(nb::module_& module);
void bind_timelines(nb::module_& module);
void bind_what_ifs(nb::module_& module);

}  // namespace pipewright::python
