#include "python/bindings.hpp"

NB_MODULE(_core, module) {
  using namespace pipewright::python;
  module.doc() = "Pipewright's libraries. Import pipewright instead.";
  bind_errors();
  bind_policies(module);
  bind_orders(module);
  bind_plans(module);
  bind_verdicts(module);
  bind_explanations(module);
  bind_pytorch(module);
  bind_measured(module);
  bind_models(module);
  bind_what_ifs(module);
  bind_timelines(module);
  bind_searches(module);
}
