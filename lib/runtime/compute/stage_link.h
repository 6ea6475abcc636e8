// What stages of a pipeline send each other: the values alive between them and, back, the gradients
// of those that want some. Where it stands: segment runner -> stage link -> link. Threads: any,
// with messages of their own.
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

// VALUES as bytes, but for the tensors in them, which TENSORS gets, each once, contiguous, on the
// CPU. Throws Error{kInput} for a value of a type that cannot leave its process, naming it.
[[nodiscard]] std::string encode_values(std::span<const c10::IValue> values,
                                        std::vector<at::Tensor>& tensors);
// The same values around new tensors, which TENSORS gets too, in the same order; their elements are
// still to come. Those that wanted gradients do again.
[[nodiscard]] std::vector<c10::IValue> decode_values(const std::string& bytes,
                                                     std::vector<at::Tensor>& tensors);

// What a message is, which its receiver must expect.
struct StageMessage {
    int part = 0;            // of the model, that the values are behind
    bool gradients = false;  // of those values
    int64_t micro_step = 0;

    bool operator==(const StageMessage&) const = default;
};

class StageLink {
  public:
    // LINKS, by stage, lead to the rank of this pipeline that is there, and number the stages; one
    // link may lead to several. They must outlive this.
    StageLink(std::vector<Link*> links, int stage) : links_(std::move(links)), stage_(stage) {}

    // To stage TO; ends once it is taken over there. NUMBER: the same as the
    // receiver's, used by one message between the two at a time. Throws what Link throws, and
    // Error{kDiverged} where another MESSAGE comes than the one that is expected.
    void send(int to, uint32_t number, std::span<const c10::IValue> values,
              const StageMessage& message = {}) const;
    [[nodiscard]] std::vector<c10::IValue> receive(int from, uint32_t number,
                                                   const StageMessage& message = {}) const;

    // STAGES, ascending and this one among them, all call it: VALUES of each, equally many, become
    // their sum, added from the last stage to the first, as a backward comes to them. NUMBER as
    // above.
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
