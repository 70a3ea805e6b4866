// Orders with versions, replicas and pairs for both devices, with what a test wants to call them.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "core/program/lower.hpp"
#include "tests/golden/golden_orders.hpp"
#include "tests/support/update_orders.hpp"

namespace pipewright::tests {

struct UpdateCase {
  std::string name;
  Order order;
};
inline void PrintTo(const UpdateCase& c, std::ostream* out) { *out << c.name; }

inline std::vector<UpdateCase> update_cases() {
  std::vector<UpdateCase> cases;
  for (const int p : {1, 2, 4}) {
    cases.push_back({"pipedream_p" + std::to_string(p), test::pipedream_order(p, 8)});
    cases.push_back(
        {"double_buffered_p" + std::to_string(p), test::double_buffered_order(p, 4, 3)});
  }
  for (const int p : {2, 4}) {
    cases.push_back({"bidirectional_p" + std::to_string(p), test::bidirectional_order(p, 8)});
  }
  cases.push_back({"round_robin", test::round_robin_order(8)});
  // Nothing has gone into the first reduction; the second holds three micro-batches and one.
  cases.push_back(
      {"unequal_replicas", read_order_csv("0REDUCE_GRAD,OPT,0F0@1,0F2@0,0B0@1,0F3@1,0B2@0,0B3@1,"
                                          "0REDUCE_GRAD,OPT\n"
                                          "0F1@0,0REDUCE_GRAD,OPT,0B1@0,0REDUCE_GRAD,OPT\n",
                                          "unequal.csv")});
  cases.push_back({"pairs_on_a_v",
                   read_order_csv("0F0,0F1,3F0,3B0,(0F2;3F1)OVERLAP_F_B,(3B1;0B0)OVERLAP_F_B,"
                                  "3F2,3B2,0B1,0B2\n"
                                  "1F0,2F0,1F1,(2F1;2B0)OVERLAP_F_B,(1F2;1B0)OVERLAP_F_B,2F2,2B1,"
                                  "1B1,2B2,1B2\n",
                                  "pairs.csv")});
  return cases;
}

/// DualPipeV's order as PyTorch's test has it: four ranks, eight stages, ten micro-batches.
inline std::filesystem::path dualpipev_file() {
  return golden::golden_dir() / "pytorch/artifacts/dualpipev_4rank_10mb.csv";
}

}  // namespace pipewright::tests
