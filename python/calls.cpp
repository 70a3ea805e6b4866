// What calls of several subjects take and heed.
#include "core/costs/cost_text.hpp"
#include "python/bindings.hpp"

namespace pipewright::python {

GivenCosts costs_of(const CostWords& words, int stages) {
  return changed_costs(parse_costs(kAssumedCosts, stages), words);
}

GivenCosts changed_costs(CostTable table, const CostWords& words) {
  GivenCosts costs;
  costs.table = std::move(table);
  if (words.cost) change_costs(*words.cost, costs.table, {"cost"});
  if (words.mem) costs.memory_limit = parse_memory(*words.mem, costs.table, {"mem"});
  if (words.message_bytes) set_message_bytes(*words.message_bytes, costs.table, "message_bytes");
  return costs;
}

void heed_signals() {
  const nb::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

}  // namespace pipewright::python
