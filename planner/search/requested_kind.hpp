// All configurations that a text such as "tp=4,schedule=1f1b" allows: a kind. Its best one stands
// for what was asked. Pure functions.
#pragma once

#include <string>

#include "core/plan/job.hpp"
#include "planner/search/search.hpp"

namespace pipewright::planner {

/// Whether the row has all that the text asks for. Throws InputError for what is not understood.
bool is_of_kind(const std::string& text, const Job& job, const Candidate& row);

/// The job with the text's values in place of its own, except those that no job can name or no
/// search can try: partition, a recompute for each stage, and schedule auto. Throws as above.
Job job_of_kind(const std::string& text, const Job& job);

/// The same with only what the text says of devices and batch: schedule, chunks, replicas of stages
/// and recompute are left open.
Job job_of_mesh(const std::string& text, const Job& job);

/// "mp_degree is 4, 8": the values of the job's own that rule out the row; "" for none.
std::string fixed_otherwise(const Job& job, const Candidate& row);

}  // namespace pipewright::planner
