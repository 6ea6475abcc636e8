// The check that ranks still keep equal copies of what must be equal: weights, optimizer states and
// the gradient norm. A bit that has flipped in one copy would otherwise spoil the training in
// silence. Data path: state -> hashes -> [here] -> all ranks. Thread: the compute lane's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plan/model/model_info.h"
#include "runtime/comm/collectives.h"
#include "runtime/state/parameter_state.h"

namespace dslaunch::runtime {

// Compares copies; see the top of this file.
class EqualCheck {
  public:
    // COLLECTIVES joins the ranks that train the same parameters. KEEPERS groups these ranks: ranks
    // of a group share one copy. On CPUs a group is a host, on GPUs a single rank. RANKS gives each
    // rank's number in the job, for error messages. If RANKS is empty, messages use the numbers of
    // COLLECTIVES. STATES are the names of the optimizer's states. COLLECTIVES and MODEL must
    // outlive this object.
    EqualCheck(Collectives& collectives, Topology keepers, const plan::ModelInfo& model,
               std::vector<int> ranks, std::vector<std::string> states);

    // Compares the copies of all ranks after STEP. Every rank calls it between steps. Each rank
    // hashes its copies, and the ranks exchange 32 bytes each. If these differ, the ranks exchange
    // the hash of each tensor. Blocks. Throws Error{kDiverged}, naming ranks, tensors and step.
    void check(int64_t step, ParameterState& state) const;

  private:
    struct Entry;
    struct RankEntries;
    [[nodiscard]] std::string rank_text(size_t rank, const RankEntries& entries) const;
    [[nodiscard]] std::string tensor_text(const Entry& entry) const;
    void name_differences(int64_t step, const std::vector<Entry>& mine) const;

    Collectives& collectives_;
    Topology keepers_;
    const plan::ModelInfo& model_;
    std::vector<int> ranks_;
    std::vector<std::string> states_;
};

}  // namespace dslaunch::runtime
