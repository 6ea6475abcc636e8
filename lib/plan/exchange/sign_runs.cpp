#include "plan/exchange/sign_runs.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "plan/exchange/exchange.h"

namespace dslaunch::plan {

std::string_view exchange_name(Exchange exchange) {
    constexpr std::array<std::string_view, kExchanges> kNames = {
        "gradients in full", "momenta in 1 bit", "gradients in 1 bit", "nothing", "moves in 1 bit"};
    return kNames[static_cast<size_t>(exchange)];
}

int64_t numel_of(std::span<const LayoutBlock> blocks) {
    int64_t numel = 0;
    for (const LayoutBlock& block : blocks) numel += block.numel;
    return numel;
}

int64_t sign_message_bytes(std::span<const LayoutBlock> blocks) {
    int64_t bytes = 0;
    for (const LayoutBlock& block : blocks) bytes += int64_t{sizeof(float)} + (block.numel + 7) / 8;
    return bytes;
}

// Puts each block into one run (see sign_runs.h). The elements are divided evenly among the runs,
// and a block belongs to the run that contains its first element.
SignRuns::SignRuns(const FlatLayout& layout, int bucket, int nodes, int bridges)
    : blocks_(blocks_of(layout, bucket)), nodes_(nodes), bridges_(bridges) {
    DSL_CHECK(nodes > 0 && bridges > 0,
              "the numbers of hosts ({}) and bridges ({}) must be at least 1", nodes, bridges);
    const int64_t runs = int64_t{nodes} * bridges, numel = numel_of(blocks_);
    int64_t begin = 0;
    for (size_t b = 0; b < blocks_.size(); ++b) {
        const int64_t run = numel == 0 ? 0 : begin * runs / numel;
        while (std::ssize(ends_) < run) ends_.push_back(b);
        begin += blocks_[b].numel;
    }
    ends_.resize(static_cast<size_t>(runs), blocks_.size());
}

std::span<const LayoutBlock> SignRuns::run(int bridge, int node) const {
    const size_t at = place(bridge, node);
    const size_t begin = at == 0 ? 0 : ends_[at - 1];
    return std::span(blocks_).subspan(begin, ends_[at] - begin);
}

std::span<const LayoutBlock> SignRuns::of_bridge(int bridge) const {
    const size_t first = place(bridge, 0);
    const size_t begin = first == 0 ? 0 : ends_[first - 1];
    return std::span(blocks_).subspan(begin, ends_[place(bridge, nodes_ - 1)] - begin);
}

Bytes SignRuns::sent_by(int node) const {
    int64_t bytes = 0;
    for (int bridge = 0; bridge < bridges_; ++bridge)
        for (int other = 0; other < nodes_; ++other)
            bytes += other == node ? 0
                                   : sign_message_bytes(run(bridge, other)) +
                                         sign_message_bytes(run(bridge, node));
    return Bytes{bytes};
}

Bytes SignRuns::sent_by_all() const {
    Bytes bytes;
    for (int node = 0; node < nodes_; ++node) bytes += sent_by(node);
    return bytes;
}

}  // namespace dslaunch::plan
