#include "launch/supervise/rank_record.h"

#include <algorithm>
#include <tuple>

#include "base/error.h"
#include "base/text/json.h"
#include "launch/process/timing.h"

namespace dslaunch::launch {
namespace {

// Returns true if the rank was asked to end and reported no failure except the loss of a peer.
bool ended_on_request(const RankRecord& record) {
    return record.told_to_end && !(record.failure && !record.only_lost_a_peer());
}

}  // namespace

bool RankRecord::only_lost_a_peer() const {
    const auto lost = static_cast<uint32_t>(ExitCode::kPeerLost);
    if (failure) return failure->code == lost;
    return exited.signal_number == 0 && exited.exit_status == static_cast<int>(lost);
}

std::optional<size_t> find_culprit(TargetKind kind, const std::vector<RankRecord>& ranks) {
    std::optional<size_t> culprit;
    const auto weight = [&](size_t i) {
        return std::make_tuple(ended_on_request(ranks[i]), ranks[i].only_lost_a_peer(),
                               ranks[i].order);
    };
    for (size_t i = 0; i < ranks.size(); ++i) {
        if (!ranks[i].failed()) continue;
        if (!culprit || weight(i) < weight(*culprit)) culprit = i;
    }
    if (!culprit || kind != TargetKind::kModel || !ranks[*culprit].only_lost_a_peer())
        return culprit;
    // The launcher may learn of the ends of ranks on several hosts in the wrong order.
    std::optional<size_t> left;
    for (size_t i = 0; i < ranks.size(); ++i) {
        const RankRecord& rank = ranks[i];
        if (!rank.ended || rank.failed() || rank.told_to_end) continue;
        if (!left || rank.order < ranks[*left].order) left = i;
    }
    return left ? left : culprit;
}

std::optional<BehindRank> find_behind(const std::vector<RankRecord>& ranks) {
    const RankRecord* newest = nullptr;
    double steps_most = 0;
    for (const RankRecord& rank : ranks) {
        if (!rank.heartbeat) continue;
        if (newest == nullptr || rank.heard_at > newest->heard_at) newest = &rank;
        steps_most = std::max(steps_most, rank.heartbeat->steps_done());
    }
    if (newest == nullptr) return std::nullopt;
    std::optional<BehindRank> behind;
    using Seconds = std::chrono::duration<double>;
    const auto silence_of = [&](const RankRecord& rank) {
        // A rank without a heartbeat has been silent since its start.
        return rank.heartbeat ? Seconds(newest->heard_at - rank.heard_at) : Seconds::max();
    };
    const auto key = [&](const RankRecord& rank) {
        return std::make_tuple(silence_of(rank) <= kHeartbeatSilenceMax,
                               rank.heartbeat ? rank.heartbeat->steps_done() : -1.0);
    };
    for (size_t i = 0; i < ranks.size(); ++i) {
        const RankRecord& rank = ranks[i];
        if (!rank.heartbeat && (!rank.started || (rank.ended && !rank.told_to_end))) continue;
        if (std::get<0>(key(rank)) && std::get<1>(key(rank)) >= steps_most) continue;
        if (!behind || key(rank) < key(ranks[behind->index]))
            behind = BehindRank{i, silence_of(rank)};
    }
    return behind;
}

std::string ranks_json(const std::vector<RankRecord>& ranks,
                       std::chrono::steady_clock::time_point now) {
    using Milliseconds = std::chrono::duration<double, std::milli>;
    JsonWriter json(JsonWriter::Form::kCompact);
    json.begin_object().key("ranks").begin_array();
    for (const RankRecord& rank : ranks) {
        json.begin_object().field("rank", rank.rank).field("host", rank.host);
        json.field("pid", rank.pid);
        json.field("state", rank.ended ? "ended" : rank.started ? "running" : "starting");
        if (rank.ended) json.field("exit_status", rank.exited.exit_status);
        if (rank.ended) json.field("signal", rank.exited.signal_number);
        if (rank.heartbeat) {
            json.field("heard_ms", Milliseconds(now - rank.heard_at).count());
            json.field("where", rank.heartbeat->where);
            json.field("steps", rank.heartbeat->steps_done()).key("busy_ms").begin_object();
            for (const LaneTime& lane : rank.heartbeat->lanes)
                json.field(lane.lane, Milliseconds(lane.busy).count());
            json.end_object();
        }
        json.end_object();
    }
    json.end_array().end_object();
    return json.text() + "\n";
}

int job_exit_code(TargetKind kind, const std::vector<RankRecord>& ranks) {
    const auto culprit = find_culprit(kind, ranks);
    if (!culprit) return static_cast<int>(ExitCode::kOk);
    const RankRecord& record = ranks[*culprit];
    if (kind != TargetKind::kModel) {
        return record.exited.signal_number != 0
                   ? 128 + static_cast<int>(record.exited.signal_number)
                   : static_cast<int>(record.exited.exit_status);
    }
    if (record.failure && is_own_code(record.failure->code)) {
        return static_cast<int>(record.failure->code);
    }
    const auto status = static_cast<uint32_t>(record.exited.exit_status);
    if (record.exited.signal_number == 0 && is_own_code(status)) return static_cast<int>(status);
    return static_cast<int>(ExitCode::kRankFailed);
}

}  // namespace dslaunch::launch
