#include "health/health_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "base/text.h"
#include "base/text/json.h"
#include "base/text/text_table.h"
#include "health/link_figures.h"

namespace dslaunch::health {
namespace {

constexpr size_t kLinkRowsMax = 24;

std::string size_text(int64_t bytes) {
    if (bytes >= 1 << 20 && bytes % (1 << 20) == 0) return fmt::format("{} MiB", bytes >> 20);
    if (bytes >= 1 << 10 && bytes % (1 << 10) == 0) return fmt::format("{} KiB", bytes >> 10);
    return fmt::format("{} B", bytes);
}

void require_pass(int64_t pass) {
    if (pass < 1 || pass > kHealthPasses)
        fail(ExitCode::kInternal, "received a health record of pass {}, but there are {} passes",
             pass, kHealthPasses);
}

// Returns the newest sample of each path, sorted by rate, the slowest path first. If a pass has two
// samples of a path, uses the sample with more exchanges, because the sample with fewer exchanges
// was made only to count answers with changed bytes.
std::vector<LinkSample> newest(const std::vector<LinkSample>& samples) {
    std::map<NodeLink, LinkSample> by_link;
    for (const LinkSample& sample : samples) {
        const NodeLink link{static_cast<int>(sample.from), static_cast<int>(sample.to)};
        LinkSample& kept = by_link.try_emplace(link, sample).first->second;
        if (kept.pass < sample.pass ||
            (kept.pass == sample.pass && kept.exchanges <= sample.exchanges))
            kept = sample;
    }
    std::vector<LinkSample> sorted;
    for (const auto& [link, sample] : by_link) sorted.push_back(sample);
    std::stable_sort(sorted.begin(), sorted.end(), [](const LinkSample& a, const LinkSample& b) {
        return a.bytes_per_second < b.bytes_per_second;
    });
    return sorted;
}

}  // namespace

double HealthRow::algorithm_bandwidth() const {
    return seconds > 0 ? static_cast<double>(bytes) / seconds / 1e9 : 0;
}

double HealthRow::bus_bandwidth(int world_size) const {
    return algorithm_bandwidth() * bus_factor(op, world_size);
}

HealthReport::HealthReport(HealthReportOptions options) : options_(std::move(options)) {
    samples_.host_names = options_.host_names;
}

void HealthReport::add(int rank, std::string_view payload) {
    const HealthRecord record = decode<HealthMessage>(payload).record;
    const auto nodes = static_cast<int64_t>(options_.host_names.size());
    if (const auto* member = std::get_if<HealthMember>(&record)) members_[rank] = *member;
    if (const auto* timing = std::get_if<HealthTiming>(&record))
        timings_[{timing->op, timing->bytes}][rank] = *timing;
    if (const auto* link = std::get_if<LinkSample>(&record)) {
        if (link->from < 0 || link->from >= nodes || link->to < 0 || link->to >= nodes)
            fail(ExitCode::kInternal,
                 "received a health record of the link from node {} to {}, but there are {} nodes",
                 link->from, link->to, nodes);
        require_pass(link->pass);
        samples_.links.push_back(*link);
    }
    if (const auto* pair = std::get_if<GpuPairSample>(&record)) {
        if (pair->first >= pair->second || pair->second >= world_size())
            fail(ExitCode::kInternal,
                 "received a health record of GPUs {} and {}, but there are {} ranks", pair->first,
                 pair->second, world_size());
        gpu_pairs_.push_back(*pair);
    }
    if (const auto* host = std::get_if<HostSample>(&record)) {
        if (host->node < 0 || host->node >= nodes)
            fail(ExitCode::kInternal, "received a health record of node {}, but there are {} nodes",
                 host->node, nodes);
        require_pass(host->pass);
        samples_.hosts.push_back(*host);
    }
    if (const auto* fault = std::get_if<HealthFault>(&record)) {
        if (fault->text.empty())
            fail(ExitCode::kInternal, "received a health record of a fault without text");
        // Several ranks may wait for a silent rank and report the same fault.
        auto& faults = samples_.faults;
        if (std::find(faults.begin(), faults.end(), *fault) == faults.end())
            faults.push_back(*fault);
    }
    if (const auto* note = std::get_if<HealthNote>(&record)) notes_.push_back(note->text);
}

void HealthReport::conclude(int job_code) {
    job_code_ = job_code;
    findings_ = judge(samples_);
    std::ranges::stable_sort(gpu_pairs_, {}, &GpuPairSample::bytes_per_second);
    GpuPlaces places{{}, options_.host_names};
    for (const HealthPlace& place : options_.ranks) {
        const auto host = std::ranges::find(options_.host_names, place.host);
        places.node_of_rank.push_back(host - options_.host_names.begin());
    }
    std::ranges::copy(judge_gpu_pairs(gpu_pairs_, places), std::back_inserter(findings_));
    if (job_code == 0) check_bandwidth();
    is_concluded_ = true;
}

std::vector<HealthRow> HealthReport::rows() const {
    std::vector<HealthRow> rows;
    for (const auto& [key, ranks] : timings_) {
        HealthRow row{key.first, key.second, 0, static_cast<int>(ranks.size()), 0};
        for (const auto& [rank, timing] : ranks) {
            row.iterations = std::max(row.iterations, timing.iterations);
            row.seconds += static_cast<double>(timing.nanoseconds) / 1e9;
        }
        row.seconds /= static_cast<double>(ranks.size());
        rows.push_back(row);
    }
    return rows;
}

// Compares the bandwidth of each operation at its best size with the limit, because small messages
// show only latency.
void HealthReport::check_bandwidth() {
    if (options_.min_bus_bandwidth <= 0) return;
    const std::vector<HealthRow> all = rows();
    for (const HealthOp op : kHealthOps) {
        if (bus_factor(op, world_size()) == 0) continue;
        double best = -1;
        for (const HealthRow& row : all)
            if (row.op == op) best = std::max(best, row.bus_bandwidth(world_size()));
        if (best < 0 || best >= options_.min_bus_bandwidth) continue;
        HealthFinding finding;
        finding.subject = HealthFinding::Subject::kEverything;
        finding.text =
            fmt::format("{}: the best bus bandwidth is {:.3g} GB/s, but --min-busbw requires {}",
                        health_op_name(op), best, options_.min_bus_bandwidth);
        findings_.push_back(std::move(finding));
    }
}

int HealthReport::exit_code() const {
    DSL_CHECK(is_concluded_, "the report is not concluded");
    // A bad host or path can make the ranks hang. The exit code then reports this host or path, not
    // the hang.
    const bool explains_hang = std::ranges::any_of(findings_, [](const HealthFinding& finding) {
        return finding.subject != HealthFinding::Subject::kRank &&
               finding.subject != HealthFinding::Subject::kEverything;
    });
    const bool is_hang = job_code_ == static_cast<int>(ExitCode::kHang);
    if (job_code_ != 0 && !(is_hang && explains_hang)) return job_code_;
    return findings_.empty() ? 0 : static_cast<int>(ExitCode::kSetup);
}

std::string HealthReport::link_table() const {
    const std::vector<LinkSample> links = newest(samples_.links);
    if (links.empty()) return {};
    std::vector<std::vector<std::string>> rows = {
        {"from", "to", "rate", "rtt p50", "rtt p99", "lost", "twice"}};
    for (size_t i = 0; i < std::min(links.size(), kLinkRowsMax); ++i) {
        const LinkSample& link = links[i];
        const auto name = [&](int64_t node) { return printable(options_.host_names[node]); };
        rows.push_back({name(link.from), link.from == link.to ? "(itself)" : name(link.to),
                        link.bytes_per_second == 0
                            ? "-"
                            : rate_text(static_cast<double>(link.bytes_per_second)),
                        link.exchanges == 0 ? "-" : time_text(static_cast<double>(link.rtt_p50)),
                        link.exchanges == 0 ? "-" : time_text(static_cast<double>(link.rtt_p99)),
                        std::to_string(link.lost), std::to_string(link.duplicated)});
        if (!link.error.empty()) rows.back().push_back(printable(link.error));
    }
    std::string text = "\n" + text_table(rows, {.align = "<<>>>>>"});
    if (links.size() > kLinkRowsMax)
        text +=
            fmt::format("… and {} faster links (--json lists all)\n", links.size() - kLinkRowsMax);
    return text;
}

std::string HealthReport::gpu_pair_table() const {
    if (gpu_pairs_.empty()) return {};
    std::vector<std::vector<std::string>> rows = {{"GPU of rank", "and of rank", "each way"}};
    for (size_t i = 0; i < std::min(gpu_pairs_.size(), kLinkRowsMax); ++i) {
        const GpuPairSample& pair = gpu_pairs_[i];
        rows.push_back(
            {std::to_string(pair.first), std::to_string(pair.second),
             fmt::format("{:.4g} GB/s", static_cast<double>(pair.bytes_per_second) / 1e9)});
    }
    std::string text = "\n" + text_table(rows);
    if (gpu_pairs_.size() > kLinkRowsMax)
        text += fmt::format("… and {} faster pairs (--json lists all)\n",
                            gpu_pairs_.size() - kLinkRowsMax);
    return text;
}

std::string HealthReport::text() const {
    std::string text = fmt::format("{:>5} {:<16} {:>5} {:<8} {:<20} {}\n", "rank", "host", "local",
                                   "backend", "device", "address");
    for (int rank = 0; rank < world_size(); ++rank) {
        const HealthPlace& place = options_.ranks[rank];
        const auto member = members_.find(rank);
        const bool came = member != members_.end();
        text += fmt::format("{:>5} {:<16} {:>5} {:<8} {:<20} {}\n", rank, printable(place.host),
                            place.local_rank, came ? printable(member->second.backend) : "-",
                            came ? printable(member->second.device) : "did not come",
                            came ? printable(member->second.address) : "-");
    }
    for (const auto& [rank, member] : members_)
        if (!member.facts.empty())
            text += fmt::format("GPU of rank {}: {}\n", rank, printable(member.facts));
    text += fmt::format("world size {}\n", world_size());
    text += link_table();
    text += gpu_pair_table();
    const std::vector<HealthRow> all = rows();
    if (!all.empty())
        text += fmt::format("\n{:<15} {:>10} {:>6} {:>12} {:>14} {:>14}\n", "operation", "size",
                            "times", "time", "algbw GB/s", "busbw GB/s");
    for (const HealthRow& row : all) {
        const bool moves = row.bytes > 0;
        text += fmt::format(
            "{:<15} {:>10} {:>6} {:>12} {:>14} {:>14}{}\n", health_op_name(row.op),
            moves ? size_text(row.bytes) : "-", row.iterations, time_text(row.seconds * 1e9),
            moves ? fmt::format("{:.4g}", row.algorithm_bandwidth()) : "-",
            moves ? fmt::format("{:.4g}", row.bus_bandwidth(world_size())) : "-",
            row.ranks < world_size() ? fmt::format("  only {} ranks finished", row.ranks) : "");
    }
    text += "\n";
    for (const std::string& note : notes_) text += fmt::format("note: {}\n", printable(note));
    for (const HealthFinding& finding : findings_)
        text += fmt::format("UNHEALTHY {}\n", printable(finding.text));
    if (findings_.empty()) {
        text += job_code_ == 0
                    ? "healthy: every result was verified, no host and no link stands out\n"
                    : "the check did not finish: see the message above\n";
    }
    return text;
}

std::string HealthReport::json() const {
    JsonWriter json;
    json.begin_object().field("world_size", world_size()).field("ok", exit_code() == 0);
    json.field("exit_code", exit_code()).key("ranks").begin_array();
    for (int rank = 0; rank < world_size(); ++rank) {
        const HealthPlace& place = options_.ranks[rank];
        json.begin_object().field("rank", rank).field("host", place.host);
        json.field("local_rank", place.local_rank);
        const auto member = members_.find(rank);
        json.field("came", member != members_.end());
        if (member != members_.end())
            json.field("device", member->second.device)
                .field("backend", member->second.backend)
                .field("address", member->second.address)
                .field("device_facts", member->second.facts);
        json.end_object();
    }
    json.end_array().key("operations").begin_array();
    for (const HealthRow& row : rows()) {
        json.begin_object().field("op", health_op_name(row.op)).field("bytes", row.bytes);
        json.field("iterations", row.iterations).field("ranks", row.ranks);
        json.field("time_us", row.seconds * 1e6).field("algbw", row.algorithm_bandwidth());
        json.field("busbw", row.bus_bandwidth(world_size())).end_object();
    }
    json.end_array().key("links").begin_array();
    for (const LinkSample& link : samples_.links) {
        json.begin_object();
        json.field("from", options_.host_names[link.from]);
        json.field("to", options_.host_names[link.to]);
        json.field("pass", link.pass).field("bytes_per_second", link.bytes_per_second);
        json.field("free_bytes_per_second", link.free_bytes_per_second);
        json.field("rtt_p50_us", static_cast<double>(link.rtt_p50) / 1e3);
        json.field("rtt_p99_us", static_cast<double>(link.rtt_p99) / 1e3);
        json.field("exchanges", link.exchanges).field("lost", link.lost);
        json.field("duplicated", link.duplicated).field("wrong", link.wrong);
        json.field("error", link.error).end_object();
    }
    json.end_array().key("gpu_pairs").begin_array();
    for (const GpuPairSample& pair : gpu_pairs_)
        json.begin_object()
            .field("first", pair.first)
            .field("second", pair.second)
            .field("bytes_per_second", pair.bytes_per_second)
            .end_object();
    json.end_array().key("findings").begin_array();
    for (const HealthFinding& finding : findings_) {
        json.begin_object().field("subject", subject_name(finding.subject)).key("hosts");
        json.begin_array();
        for (const int64_t node : finding.nodes) json.value(options_.host_names[node]);
        json.end_array();
        if (finding.rank >= 0) json.field("rank", finding.rank);
        json.field("text", finding.text).end_object();
    }
    json.end_array().key("notes").begin_array();
    for (const std::string& note : notes_) json.value(note);
    json.end_array().end_object();
    return json.text() + "\n";
}

}  // namespace dslaunch::health
