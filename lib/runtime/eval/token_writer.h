// Writes texts, token by token, with the weights that are being trained: no second copy of the
// weights is made. At any ZeRO stage, they are gathered segment by segment, as in an evaluation.
// For each new token, the whole text so far is computed once more. Data path: prompts -> [here] ->
// text samples. Thread: the compute lane.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "config/run/run_config.h"
#include "graph/lower/lower.h"
#include "graph/segment/segmented_model.h"
#include "runtime/comm/collectives.h"
#include "runtime/compute/model_buffers.h"
#include "runtime/state/readable_state.h"

namespace dslaunch::runtime {

// The objects and settings of a token writer. Pointers must outlive it.
struct TokenWriterParts {
    graph::Model* model = nullptr;
    graph::LowerOptions lowering;  // for MODEL in eval mode; its loss and arguments are not used
    const config::RunConfig* config = nullptr;
    ModelBuffers* buffers = nullptr;
    ReadableState* state = nullptr;
    Collectives* collectives = nullptr;  // joins the ranks, each of which has the whole model
    c10::Device device = c10::kCPU;      // device of STATE's parameters, and of buffers
    // Returns true if the writing must end early. Every rank calls it before each token and must
    // get the same answer. If it is empty, the writing never ends early.
    std::function<bool()> leaves = {};
};

// The rules by which texts are continued.
struct Continuation {
    int64_t tokens_max = 0;           // tokens after the prompt
    std::vector<int32_t> end_tokens;  // tokens that end a text; they are not part of it
};

// Writes; see the top of this file.
class TokenWriter {
  public:
    // Throws Error{kConfig} if the model has no method that returns logits of tokens.
    explicit TokenWriter(TokenWriterParts parts);

    // Returns the most probable tokens after each of PROMPTS, the same on all ranks. Returns
    // nullopt if the ranks left early. Of two equally probable tokens, the token with the smaller
    // id is taken. The ranks divide the prompts among themselves. All ranks call it, outside of a
    // step. Afterwards the model is in train mode again, with the buffers as they were. Throws
    // Error{kInput} if the model fails or returns no logits, or if a prompt has a token that the
    // model does not know.
    [[nodiscard]] std::optional<std::vector<std::vector<int32_t>>> write(
        std::span<const std::vector<int32_t>> prompts, const Continuation& how);

    // Returns the number of logits of a token. All ranks call it.
    [[nodiscard]] int64_t vocabulary();

  private:
    [[nodiscard]] const graph::SegmentedModel& prepare();
    [[nodiscard]] at::Tensor next_logits(const std::vector<int32_t>& text, bool takes_part);
    [[nodiscard]] bool all_agree_to_leave() const { return parts_.leaves && parts_.leaves(); }

    TokenWriterParts parts_;
    int64_t context_;  // tokens that the model can see at once; 0 if there is no limit
    std::unique_ptr<graph::SegmentedModel> segmented_;
};

}  // namespace dslaunch::runtime
