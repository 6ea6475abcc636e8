// What stages of a pipeline send each other: the values alive between them and, back, the gradients
// of those that want some. Where it stands: segment runner -> stage link -> link. Threads: any,
// with messages of their own; one gathers.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/comm/link.h"

namespace dslaunch {

// VALUES as bytes, but for the tensors in them, which TENSORS gets, each once, contiguous, on the
// CPU. Throws Error{kInput} for a value of a type that cannot leave its process, naming it.
[[nodiscard]] std::string encode_values(std::span<const c10::IValue> values,
                                        std::vector<at::Tensor>& tensors);
// The same values around new tensors, which TENSORS gets too, in the same order; their elements are
// still to come. Those that wanted gradients do again.
[[nodiscard]] std::vector<c10::IValue> decode_values(const std::string& bytes,
                                                     std::vector<at::Tensor>& tensors);

class StageLink {
  public:
    // LINK joins the ranks of one pipeline, its nodes are the stages; it must outlive this.
    StageLink(Link& link, int stage, int stages) : link_(link), stage_(stage), stages_(stages) {}

    // To stage TO; ends once it is taken over there. NUMBER: the same as the receiver's, used by
    // one message between the two at a time. Throws what Link throws.
    void send(int to, uint32_t number, std::span<const c10::IValue> values) const;
    [[nodiscard]] std::vector<c10::IValue> receive(int from, uint32_t number) const;

    // One string from each stage, by stage; all of them call it. One at a time.
    [[nodiscard]] std::vector<std::string> all_gather(std::string_view mine) const;

    [[nodiscard]] Traffic traffic() const { return link_.traffic(); }
    void abort(std::string_view text) const { link_.abort(text); }

  private:
    Link& link_;
    int stage_;
    int stages_;
};

}  // namespace dslaunch
