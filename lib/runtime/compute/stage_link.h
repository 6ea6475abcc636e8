// The messages between stages of a pipeline: the values alive between them and, back, gradients if
// the values want some. Data path: segment runner -> stage link -> link. Threads: any, with
// messages of their own.
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

// Returns VALUES as bytes without their tensors. TENSORS gets these, each once, contiguous, on the
// CPU. Throws Error{kInput} naming a value of a type that cannot leave its process.
[[nodiscard]] std::string encode_values(std::span<const c10::IValue> values,
                                        std::vector<at::Tensor>& tensors);
// Returns the same values around new tensors, which TENSORS gets too, in the same order. Their
// elements are still to come. Tensors that wanted gradients do so again.
[[nodiscard]] std::vector<c10::IValue> decode_values(const std::string& bytes,
                                                     std::vector<at::Tensor>& tensors);

// The description of a message, which its receiver must expect.
struct StageMessage {
    int part = 0;            // part of the model that the values come after
    bool gradients = false;  // true for the gradients of these values
    int64_t micro_step = 0;

    bool operator==(const StageMessage&) const = default;
};

class StageLink {
  public:
    // LINKS lead to the ranks of this pipeline, by stage, and number the stages. One link may lead
    // to several. They must outlive this.
    StageLink(std::vector<Link*> links, int stage) : links_(std::move(links)), stage_(stage) {}

    // send() sends to stage TO and ends once the message is received there. NUMBER is the
    // receiver's too, and one message between the two uses it at a time. Both functions throw the
    // errors of Link. receive() throws Error{kDiverged} if another MESSAGE comes than the expected
    // one.
    void send(int to, uint32_t number, std::span<const c10::IValue> values,
              const StageMessage& message = {}) const;
    [[nodiscard]] std::vector<c10::IValue> receive(int from, uint32_t number,
                                                   const StageMessage& message = {}) const;

    // Replaces VALUES of STAGES, equally many on each, by their sum, added from the last stage to
    // the first, as a backward comes to them. STAGES ascend and include this one, and all of them
    // call it. NUMBER is as for send().
    void sum(std::span<float> values, std::span<const int> stages, uint32_t number) const;

    [[nodiscard]] int stage() const { return stage_; }
    [[nodiscard]] int stages() const { return static_cast<int>(links_.size()); }
    void abort(std::string_view text) const {
        for (Link* const link : links_) link->abort(text);
    }

  private:
    [[nodiscard]] Link& to(int stage) const { return *links_.at(static_cast<size_t>(stage)); }

    std::vector<Link*> links_;
    int stage_;
};

}  // namespace dslaunch::runtime
