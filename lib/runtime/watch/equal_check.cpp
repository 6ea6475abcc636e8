#include "runtime/watch/equal_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "base/text/message.h"
#include "kernels/copy_hash.h"
#include "launch/machine/machine_name.h"

namespace dslaunch::runtime {

namespace {

constexpr int kNorm = -3;  // state number that stands for the step's gradient norm

// The first message of each rank.
struct Digest {
    uint64_t shared = 0;  // digest of the rank's part of the weights that its host shares
    uint64_t own = 0;     // digest of the values of which each rank keeps a copy
    uint64_t norm = 0;
    int64_t part = -1;  // number of the part that `own` covers; -1 if it covers none
};

// Returns true if DIGESTS, by rank, say that all copies are equal.
bool are_equal(const Topology& topology, const std::vector<Digest>& digests) {
    std::vector<uint64_t> hosts;
    std::map<int64_t, uint64_t> parts;
    for (int node = 0; node < topology.node_count(); ++node) {
        uint64_t& host = hosts.emplace_back();
        for (int local = 0; local < topology.node_sizes[node]; ++local) {
            const Digest& digest = digests[topology.first_rank(node) + local];
            host += digest.shared;
            if (digest.norm != digests.front().norm) return false;
            if (digest.part < 0) continue;
            if (parts.try_emplace(digest.part, digest.own).first->second != digest.own)
                return false;
        }
    }
    return std::ranges::all_of(hosts, [&](uint64_t host) { return host == hosts.front(); });
}

// Returns HASH combined with the identity of its tensor. Digests are sums of such hashes. Without
// the identity, a sum would stay the same if two tensors had each other's values.
uint64_t mixed(int parameter, int state, uint64_t hash) {
    const auto number = static_cast<uint64_t>(parameter * 8 + state + 4);
    return (hash ^ (hash >> 29)) * (2 * number + 0x9E3779B97F4A7C15U);
}

}  // namespace

// The hash of a tensor on one rank.
struct EqualCheck::Entry {
    int32_t parameter = -1;
    int32_t state = CopiedValues::kWeights;
    int32_t part = 0;
    uint64_t hash = 0;
};

// The message of a rank if copies differ.
struct EqualCheck::RankEntries {
    static constexpr const char* kWhat = "the hashes of a rank's tensors";
    std::string host;
    std::vector<Entry> entries;
};

EqualCheck::EqualCheck(Collectives& collectives, Topology keepers, const plan::ModelInfo& model,
                       std::vector<int> ranks, std::vector<std::string> states)
    : collectives_(collectives),
      keepers_(std::move(keepers)),
      model_(model),
      ranks_(std::move(ranks)),
      states_(std::move(states)) {}

void EqualCheck::check(int64_t step, ParameterState& state) const {
    state.settle();
    std::map<std::tuple<int, int, int>, uint64_t> hashes;
    state.visit_copied([&](const CopiedValues& copied) {
        const int64_t element_bytes = std::ssize(copied.values) / copied.elements.numel;
        hashes[{copied.parameter, copied.state, copied.part}] +=
            kernels::copy_hash(copied.values, element_bytes, copied.elements.begin);
    });
    const auto norm = std::bit_cast<uint64_t>(state.gradient_norm().value_or(0));
    std::vector<Entry> entries = {{-1, kNorm, 0, norm}};
    Digest digest;
    digest.norm = norm;
    for (const auto& [key, hash] : hashes) {
        const auto& [parameter, which, part] = key;
        entries.push_back({parameter, which, part, hash});
        if (part == CopiedValues::kOfHost) {
            digest.shared += mixed(parameter, which, hash);
        } else {
            digest.own += mixed(parameter, which, hash);
            digest.part = part;
        }
    }
    if (!are_equal(keepers_, gather_values(collectives_, digest))) name_differences(step, entries);
}

// Returns "rank 3 on te2".
std::string EqualCheck::rank_text(size_t rank, const RankEntries& entries) const {
    const int number = rank < ranks_.size() ? ranks_[rank] : static_cast<int>(rank);
    return fmt::format("rank {} on {}", number, entries.host);
}

// Returns "the weights of `blocks.0.attn.weight`".
std::string EqualCheck::tensor_text(const Entry& entry) const {
    if (entry.state == kNorm) return "the values of the gradient norm";
    std::string what = "the weights";
    if (entry.state == CopiedValues::kMaster) what = "the fp32 weights";
    if (entry.state >= 0)
        what = static_cast<size_t>(entry.state) < states_.size()
                   ? fmt::format("the values of the optimizer state {}", states_[entry.state])
                   : fmt::format("the values of the optimizer state {}", entry.state);
    return fmt::format("{} of `{}`", what, model_.parameters[entry.parameter].name);
}

// Exchanges all hashes. Throws Error{kDiverged}, naming the tensors that differ, and the ranks
// whose copy differs from the copy that most ranks keep.
void EqualCheck::name_differences(int64_t step, const std::vector<Entry>& mine) const {
    constexpr size_t kNamedMax = 4;
    std::vector<RankEntries> all;
    for (const std::string& bytes :
         collectives_.all_gather(encode(RankEntries{launch::machine_name(), mine})))
        all.push_back(decode<RankEntries>(bytes));
    using Key = std::tuple<int32_t, int32_t, int32_t>;
    std::map<Key, std::map<uint64_t, std::vector<size_t>>> ranks_of_hash;
    for (size_t rank = 0; rank < all.size(); ++rank)
        for (const Entry& entry : all[rank].entries)
            ranks_of_hash[{entry.parameter, entry.state, entry.part}][entry.hash].push_back(rank);
    std::string text;
    size_t differing = 0;
    for (const auto& [key, hashes] : ranks_of_hash) {
        if (hashes.size() < 2 || ++differing > kNamedMax) continue;
        const auto& [parameter, state, part] = key;
        const auto most = std::ranges::max_element(
            hashes, {}, [](const auto& same) { return same.second.size(); });
        const bool is_tie = std::ranges::count_if(hashes, [&](const auto& same) {
                                return same.second.size() == most->second.size();
                            }) > 1;
        std::vector<std::string> names;
        for (auto same = hashes.begin(); same != hashes.end(); ++same)
            for (const size_t rank : same->second)
                if (is_tie || same != most) names.push_back(rank_text(rank, all[rank]));
        std::ranges::sort(names);
        const std::string tensor = tensor_text({parameter, state, part, 0});
        text +=
            fmt::format("{}{}", text.empty() ? "" : "; ",
                        is_tie ? fmt::format("{} differ between {}", tensor, join(names, ", "))
                               : fmt::format("{} on {} differ from the values on the other ranks",
                                             tensor, join(names, ", ")));
    }
    if (differing > kNamedMax) text += fmt::format("; and so do {} more", differing - kNamedMax);
    if (differing == 0) {
        if (collectives_.topology().rank() == 0)
            log_warn(
                "train",
                "after step {}, ranks reported different checksums, but each tensor has the same "
                "checksum on all ranks: memory or a link has probably changed a bit of a checksum; "
                "if this warning is repeated, test the machines",
                step);
        return;
    }
    fail(ExitCode::kDiverged,
         "after step {}, ranks no longer keep equal copies: {}. Memory, a processor or a link has "
         "probably changed bits: continue from the last checkpoint with --resume, without the "
         "named machine (dslaunch.check_equal_interval)",
         step, text);
}

}  // namespace dslaunch::runtime
