#include "exec/runtime/verify_report.hpp"

#include <cmath>

namespace pipewright::exec {
namespace {

const Difference& worse_of(const Difference& a, const Difference& b) {
  if (std::isnan(a.norm_rel) != std::isnan(b.norm_rel)) return std::isnan(a.norm_rel) ? a : b;
  if (a.norm_rel != b.norm_rel) return a.norm_rel > b.norm_rel ? a : b;
  return a.bitwise ? b : a;
}

}  // namespace

VerifyReport worse_of(const VerifyReport& a, const VerifyReport& b) {
  VerifyReport worse = a;
  worse.gradients = worse_of(a.gradients, b.gradients);
  worse.parameters = worse_of(a.parameters, b.parameters);
  return worse;
}

}  // namespace pipewright::exec
