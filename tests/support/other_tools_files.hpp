// Strict readers of the files that other tools take, written from those tools' documentation and
// not from our writers: what the tool would not understand is a problem. For tests of the exports.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/base/json.hpp"

namespace pipewright::test {

/// What is wrong, in words; empty: nothing.
using Problems = std::vector<std::string>;

/// Megatron-LM's pipeline layout: one string of letters (E, t, m, L) for each stage. The grammar is
/// that of its user guide: commas mean nothing, | ends a stage, a letter or a group in parentheses
/// with *n after it stands n times; groups do not nest.
std::vector<std::string> read_megatron_layout(const std::string& layout, Problems& problems);

/// Megatron-LM's flags: the words of all arrays of a bash file, flag to value ("" for a switch).
/// Every flag has to be one of its documented ones, with a value of the right kind.
std::map<std::string, std::string> read_megatron_flags(const std::string& text, Problems& problems);

/// torchtitan 0.3's command line: the words of one array of a bash file, flag to value, lists of
/// modules as lists of lists; "activation_checkpoint" to its sub-command, which is the last word.
/// Every flag has to be a field of its Trainer.Config of that type.
std::map<std::string, Json> read_torchtitan_flags(const std::string& text, Problems& problems);

/// Keys and kinds of paddle.distributed.Strategy (and hybrid_configs), of the auto tuner's job, and
/// of DeepSpeed's configuration.
Problems problems_of_paddle_strategy(const Json& document);
Problems problems_of_paddle_tuner_job(const Json& document);
Problems problems_of_deepspeed(const Json& document, int data_parallel_ranks);

}  // namespace pipewright::test
