// What a command has read, as a flat table: what a flag changed is what differs in it.
#pragma once

#include <map>
#include <string>

#include "core/plan/plan.hpp"
#include "tests/support/draw.hpp"
#include "tools/input/subject.hpp"

namespace pipewright::tests {

/// "costs.0.F" -> "1000", "policy.issue" -> "stream".
using Facts = std::map<std::string, std::string>;

/// Costs, memory, messages, routes, policy, limit, and the order with how it is lowered.
Facts facts_of(const tools::Subject& subject);
void put_policy(Facts& facts, const CommPolicy& policy);
/// A line for each fact that differs; "" if none does.
std::string difference(const Facts& expected, const Facts& found);

/// A plan of 2 to 4 stages with its own costs, memory, messages, routes and policy; B is I + W or a
/// time of its own, and W gives back what F took or something else.
Plan random_plan(test::Draw& draw);

}  // namespace pipewright::tests
