#include "runtime/train/step_facts.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "base/check.h"

namespace dslaunch::runtime {

namespace {

// The first part of a rank's message; the rows of what it moved follow. All ranks run one program.
struct Head {
    RankFacts facts;
    SavePhase save = SavePhase::kIdle;
    std::array<Bytes, kTrafficKinds> planned{};
};
struct HostRow {
    int host = 0;
    TrafficTable::Row row{};
};
static_assert(std::is_trivially_copyable_v<Head> && std::is_trivially_copyable_v<HostRow>);

template <typename T>
void append(std::string& bytes, const T& value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

}  // namespace

StepFacts gather_facts(Collectives& collectives, int stages, const RankFacts& mine, SavePhase save,
                       const StepLinks& links) {
    std::string sent;
    append(sent, Head{mine, save, links.planned});
    for (const auto& [host, row] : links.moved.by_host) append(sent, HostRow{host, row});
    StepFacts all;
    const std::vector<std::string> ranks = collectives.all_gather(sent);
    const auto with_loss = static_cast<double>(std::ssize(ranks) / stages);
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
        Head head;
        DSL_CHECK(ranks[rank].size() >= sizeof head, "the facts of rank {} are cut", rank);
        std::memcpy(&head, ranks[rank].data(), sizeof head);
        const RankFacts& facts = head.facts;
        all.loss += facts.loss;
        if (facts.has_rewards) all.rewards.add(facts.rewards, 1 / with_loss);
        all.has_rewards = all.has_rewards || facts.has_rewards;
        all.rss_bytes = std::max(all.rss_bytes, facts.rss_bytes);
        all.peak_rss_bytes = std::max(all.peak_rss_bytes, facts.peak_rss_bytes);
        all.page_faults = std::max(all.page_faults, facts.page_faults);
        all.data_wait_ms = std::max(all.data_wait_ms, facts.data_wait_ms);
        all.compute_wait_ms = std::max(all.compute_wait_ms, facts.compute_wait_ms);
        all.end = all.end || facts.end;
        all.saves.push_back(head.save);
        if (static_cast<int>(rank) >= collectives.topology().node_sizes.front()) continue;
        StepLinks of_rank{.moved = {}, .planned = head.planned};
        for (size_t at = sizeof head; at < ranks[rank].size(); at += sizeof(HostRow)) {
            HostRow moved;
            std::memcpy(&moved, ranks[rank].data() + at, sizeof moved);
            of_rank.moved.by_host[moved.host] = moved.row;
        }
        all.links += of_rank;
    }
    all.loss /= with_loss;
    return all;
}

}  // namespace dslaunch::runtime
