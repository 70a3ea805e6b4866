// Profiling as profile and demo do it.
#pragma once

#include <string>
#include <vector>

#include "core/cluster/cluster.hpp"
#include "core/model/model.hpp"
#include "core/plan/profile.hpp"
#include "exec/profile/profile.hpp"
#include "tools/cli/session.hpp"

namespace pipewright::tools {

/// The preset local-cpu with as many ranks as there are cores for this process, at least 2.
Cluster this_machine();
/// Ascending, 16 at most: micro-batch sizes that divide a batch.
std::vector<int> divisors_of(int batch);

/// measure_profile(), with a line on stderr; Ctrl-C ends it with Interrupted.
Profile measure(const Model& model, const Cluster& cluster, exec::ProfileOptions options,
                Session& session);
/// The times of each layer at the smallest and the largest micro-batch size.
std::string profile_text(const Profile& profile, const Model& model, const Terminal& terminal);

}  // namespace pipewright::tools
