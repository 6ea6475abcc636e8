#include "runtime/train/step_facts.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/text/message.h"
#include "runtime/watch/process_usage.h"

namespace dslaunch::runtime {

namespace {

// A rank's traffic with one other host, by kind.
struct HostRow {
    int host = 0;
    std::vector<Traffic> row;
};

// The message of a rank to all others.
struct RankMessage {
    static constexpr const char* kWhat = "the facts of a rank";
    RankFacts facts;
    SavePhase save = SavePhase::kIdle;
    std::vector<Bytes> planned;  // by kind
    std::vector<HostRow> moved;

    // Throws Error{kInternal} unless there is a value for each kind.
    void check() const {
        const auto require = [](size_t kinds) {
            if (kinds != kTrafficKinds)
                fail(ExitCode::kInternal,
                     "the ranks run different builds of dsworker: one rank reports {} kinds of "
                     "traffic, but this build has {}; install the same build on all hosts",
                     kinds, kTrafficKinds);
        };
        require(planned.size());
        for (const HostRow& host : moved) require(host.row.size());
    }
};

}  // namespace

StepFacts gather_facts(Collectives& collectives, int stages, const RankFacts& mine, SavePhase save,
                       const StepLinks& links) {
    RankMessage sent{mine, save, {links.planned.begin(), links.planned.end()}, {}};
    for (const auto& [host, row] : links.moved.by_host)
        sent.moved.push_back({host, {row.begin(), row.end()}});
    StepFacts all;
    const std::vector<std::string> ranks = collectives.all_gather(encode(sent));
    const auto with_loss = static_cast<double>(std::ssize(ranks) / stages);
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
        const auto message = decode<RankMessage>(ranks[rank]);
        const RankFacts& facts = message.facts;
        all.loss += facts.loss;
        if (facts.has_rewards) all.rewards.add(facts.rewards, 1 / with_loss);
        all.has_rewards = all.has_rewards || facts.has_rewards;
        all.rss_bytes = std::max(all.rss_bytes, facts.rss_bytes);
        all.peak_rss_bytes = std::max(all.peak_rss_bytes, facts.peak_rss_bytes);
        all.page_faults = std::max(all.page_faults, facts.page_faults);
        all.data_wait_ms = std::max(all.data_wait_ms, facts.data_wait_ms);
        all.compute_wait_ms = std::max(all.compute_wait_ms, facts.compute_wait_ms);
        all.end = all.end || facts.end;
        all.saves.push_back(message.save);
        if (static_cast<int>(rank) >= collectives.topology().node_sizes.front()) continue;
        StepLinks of_rank;
        std::ranges::copy(message.planned, of_rank.planned.begin());
        for (const HostRow& host : message.moved)
            std::ranges::copy(host.row, of_rank.moved.by_host[host.host].begin());
        all.links += of_rank;
    }
    all.loss /= with_loss;
    return all;
}

void RankMeter::begin() {
    traffic_before_ = runner_.traffic();
    faults_before_ = process_usage().page_faults;
}

RankFacts RankMeter::take() {
    const ProcessUsage usage = process_usage();
    const Duration data_waited = loader_ == nullptr ? Duration{0} : loader_->waited();
    RankFacts facts;
    facts.rss_bytes = usage.rss_bytes;
    facts.peak_rss_bytes = usage.peak_rss_bytes;
    facts.page_faults = usage.page_faults - faults_before_;
    facts.data_wait_ms = to_milliseconds(data_waited - data_waited_before_);
    facts.compute_wait_ms = to_milliseconds(runner_.compute_waited());
    faults_before_ = usage.page_faults;
    data_waited_before_ = data_waited;
    return facts;
}

StepLinks RankMeter::take_links() {
    StepLinks links;
    TrafficTable now = runner_.traffic();
    links.moved = now.since(traffic_before_);
    traffic_before_ = std::move(now);
    if (tells_planned_) links.planned = runner_.plan().sent_by_kind();
    return links;
}

}  // namespace dslaunch::runtime
