// The messages between stages of a pipeline: the values alive between the stages and, in the other
// direction, the gradients of the values that need them. Data path: segment runner -> stage link ->
// link. Threads: any thread may use it, with messages of its own.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/comm/link.h"

namespace dslaunch::runtime {

// Returns VALUES as bytes, but without the elements of their tensors. Adds each tensor to TENSORS
// once, contiguous and on the CPU. Throws Error{kInput}, naming a value, if its type cannot be sent
// to another process.
[[nodiscard]] std::string encode_values(std::span<const c10::IValue> values,
                                        std::vector<at::Tensor>& tensors);
// Returns the values that encode_values() has written to BYTES, with new tensors. The tensors are
// also added to TENSORS, in the order in which encode_values() added them, and their elements are
// not set yet. A tensor needs gradients if the encoded tensor did.
[[nodiscard]] std::vector<c10::IValue> decode_values(const std::string& bytes,
                                                     std::vector<at::Tensor>& tensors);

// The description of a message, which its receiver must expect.
struct StageMessage {
    static constexpr const char* kWhat = "message between stages";
    int part = 0;            // the part of the model before the values
    bool gradients = false;  // true for the gradients of these values
    int64_t micro_step = 0;

    bool operator==(const StageMessage&) const = default;
};

// One rank's link to the other stages of its pipeline. Any thread.
class StageLink {
  public:
    // LINKS has one entry for each stage: the link to the rank of the same pipeline on that stage.
    // On a link, a rank's node number is the number of its stage. Several stages may have the same
    // link. The links must outlive this object.
    StageLink(std::vector<Link*> links, int stage) : links_(std::move(links)), stage_(stage) {}

    // send() sends to stage TO and returns once the message is received there. NUMBER must be the
    // same at the receiver, and no other message between the two stages uses it at the same time.
    // Both functions throw the errors of Link. receive() throws Error{kDiverged} if the message
    // that arrives is not the expected MESSAGE.
    void send(int to, uint32_t number, std::span<const c10::IValue> values,
              const StageMessage& message = {}) const;
    [[nodiscard]] std::vector<c10::IValue> receive(int from, uint32_t number,
                                                   const StageMessage& message = {}) const;

    // Replaces VALUES by their sum over STAGES, added from the last stage to the first, as in a
    // backward pass. All of STAGES have equally many values. STAGES ascend and include this stage,
    // and all of them call it. NUMBER is as for send().
    void sum(std::span<float> values, std::span<const int> stages, uint32_t number) const;

    // This rank's stage, from 0, and the number of stages.
    [[nodiscard]] int stage() const { return stage_; }
    [[nodiscard]] int stages() const { return static_cast<int>(links_.size()); }
    // Ends all transfers with an error that has TEXT. Does not block.
    void abort(std::string_view text) const {
        for (Link* const link : links_) link->abort(text);
    }

  private:
    [[nodiscard]] Link& to(int stage) const { return *links_.at(static_cast<size_t>(stage)); }

    std::vector<Link*> links_;
    int stage_;
};

}  // namespace dslaunch::runtime
