#include "health/health_verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "base/median.h"
#include "health/link_figures.h"

namespace dslaunch::health {
namespace {

// A rate is slow if it is below this part of the median of the other rates, even if the other rates
// vary widely.
constexpr double kSlowPart = 0.25;
// A rate is also slow if it is this many deviations below the median. With fewer rates than
// kSpreadSamples, the deviation is not known.
constexpr double kDeviations = 6;
constexpr double kSpreadLeast = 0.08;  // least deviation, as a part of the median, because values
                                       // may be equal by chance
constexpr size_t kSpreadSamples = 6;
constexpr double kLateTimes = 4;
constexpr double kLateNanoseconds = 500e3;
constexpr double kTailTimes = 10;
constexpr double kTailNanoseconds = 20e6;
constexpr double kLostPart = 0.001;
constexpr double kDuplicatedPart = 0.003;
constexpr int64_t kDuplicatedLeast = 3;
constexpr double kBusyTimes = 3;

enum class Symptom { kBroken, kWrong, kLoss, kDuplicates, kRate, kDelay, kTail, kBusy };
using Symptoms = std::set<Symptom>;
using Flags = std::map<NodeLink, Symptoms>;

// Returns false if SYMPTOM was found in round trips, because a round trip does not show which
// direction is late.
bool has_direction(Symptom symptom) {
    return symptom != Symptom::kDelay && symptom != Symptom::kTail;
}

NodeLink link_of(const LinkSample& sample) {
    return {static_cast<int>(sample.from), static_cast<int>(sample.to)};
}

// Returns the median. If the number of values is even, UPPER selects the upper one of the two
// middle values. This helps if one of three hosts is bad: the bad host spoils two of the three
// pairs, and thus half of the values to which the good pair is compared.
double median(const std::vector<double>& values, bool upper = true) {
    return median_of(values, upper ? Middle::kUpper : Middle::kLower);
}

double deviation(const std::vector<double>& values) {
    const double middle = median(values);
    std::vector<double> distances;
    for (const double value : values) distances.push_back(std::abs(value - middle));
    return 1.4826 * median(distances);  // the standard deviation of a normal distribution
}

using Measure = std::function<double(const LinkSample&)>;

// The values with which a measurement of LINK is compared: the same measure on the other links of
// the same pass. `all` has all other links; `apart` has only the links that share no host with
// LINK. `apart` is better if a host of LINK is bad, and `all` if another host is bad, so best()
// takes the better of the two medians.
struct Elsewhere {
    std::vector<double> all;
    std::vector<double> apart;

    [[nodiscard]] bool known() const { return !all.empty(); }
    [[nodiscard]] double best(bool high_is_good) const {
        const double first = median(all, high_is_good);
        const double second = apart.empty() ? first : median(apart, high_is_good);
        return high_is_good ? std::max(first, second) : std::min(first, second);
    }
};

Elsewhere elsewhere(const std::vector<LinkSample>& pass, const NodeLink& link,
                    const Measure& measure) {
    Elsewhere other;
    for (const LinkSample& sample : pass) {
        const NodeLink one = link_of(sample);
        const bool inside = one.from == one.to;
        if (inside != (link.from == link.to) || !sample.error.empty()) continue;
        const double value = measure(sample);
        if (value <= 0) continue;
        const int shared = (one.from == link.from || one.from == link.to ? 1 : 0) +
                           (one.to == link.from || one.to == link.to ? 1 : 0);
        if (shared == 2) continue;  // the link itself, or its opposite direction
        other.all.push_back(value);
        if (shared == 0) other.apart.push_back(value);
    }
    return other;
}

bool is_slow(double rate, const Elsewhere& other) {
    if (!other.known() || rate <= 0) return false;
    const double good = other.best(true);
    if (rate < kSlowPart * good) return true;
    if (other.all.size() < kSpreadSamples) return false;
    return rate < good - kDeviations * std::max(deviation(other.all), kSpreadLeast * good);
}

bool is_late(double time, const Elsewhere& other, double times, double least) {
    return other.known() && time > times * other.best(false) + least;
}

Measure rate_of() {
    return [](const LinkSample& s) { return static_cast<double>(s.free_bytes_per_second); };
}

Symptoms symptoms_of(const LinkSample& sample, const std::vector<LinkSample>& pass) {
    Symptoms found;
    const NodeLink link = link_of(sample);
    const auto part = [&](int64_t count) {
        return static_cast<double>(count) / static_cast<double>(sample.exchanges + count + 1);
    };
    if (sample.wrong > 0) found.insert(Symptom::kWrong);
    if (!sample.error.empty()) found.insert(Symptom::kBroken);
    if (sample.lost > 0 && part(sample.lost) >= kLostPart) found.insert(Symptom::kLoss);
    if (sample.duplicated >= kDuplicatedLeast && part(sample.duplicated) >= kDuplicatedPart)
        found.insert(Symptom::kDuplicates);
    Elsewhere rates = elsewhere(pass, link, rate_of());
    // If there are only two hosts, a direction can only be compared with the opposite one.
    if (!rates.known()) {
        for (const LinkSample& back : pass)
            if (back.from == sample.to && back.to == sample.from && back.from != back.to)
                rates.all.push_back(static_cast<double>(back.free_bytes_per_second));
    }
    if (is_slow(static_cast<double>(sample.free_bytes_per_second), rates))
        found.insert(Symptom::kRate);
    if (sample.exchanges == 0) return found;
    const auto p50 = [](const LinkSample& s) { return static_cast<double>(s.rtt_p50); };
    const auto p99 = [](const LinkSample& s) { return static_cast<double>(s.rtt_p99); };
    if (is_late(p50(sample), elsewhere(pass, link, p50), kLateTimes, kLateNanoseconds))
        found.insert(Symptom::kDelay);
    if (is_late(p99(sample), elsewhere(pass, link, p99), kTailTimes, kTailNanoseconds))
        found.insert(Symptom::kTail);
    return found;
}

// Returns the flags of a pass. Samples of hosts are treated as links from a host to itself.
Flags flags_of_pass(const HealthSamples& samples, int pass) {
    Flags flags;
    std::vector<LinkSample> links;
    for (const LinkSample& sample : samples.links)
        if (sample.pass == pass) links.push_back(sample);
    for (const LinkSample& sample : links) {
        // A host's own loopback says something only in comparison with other hosts' loopbacks.
        const Symptoms found = symptoms_of(sample, links);
        if (!found.empty()) flags[link_of(sample)].insert(found.begin(), found.end());
    }
    for (const HostSample& host : samples.hosts) {
        if (host.pass != pass) continue;
        std::vector<double> others;
        for (const HostSample& other : samples.hosts)
            if (other.pass == pass && other.node != host.node)
                others.push_back(static_cast<double>(other.nanoseconds));
        const auto node = static_cast<int>(host.node);
        if (!others.empty() && static_cast<double>(host.nanoseconds) > kBusyTimes * median(others))
            flags[{node, node}].insert(Symptom::kBusy);
    }
    return flags;
}

struct Seen {
    int passes = 0;
    std::map<Symptom, int> bad;
};

bool is_confirmed(Symptom symptom, int bad, int passes) {
    switch (symptom) {
        case Symptom::kWrong:
            return bad > 0;
        case Symptom::kBroken:
        case Symptom::kLoss:
        case Symptom::kDuplicates:
            return bad == passes || bad > 1;
        default:
            return bad == passes;
    }
}

Flags confirmed_flags(const HealthSamples& samples) {
    std::map<NodeLink, Seen> seen;
    for (int pass = 1; pass <= kHealthPasses; ++pass) {
        std::set<NodeLink> measured;
        for (const LinkSample& sample : samples.links)
            if (sample.pass == pass) measured.insert(link_of(sample));
        for (const NodeLink& link : measured) ++seen[link].passes;
        for (const auto& [link, symptoms] : flags_of_pass(samples, pass))
            for (const Symptom symptom : symptoms) ++seen[link].bad[symptom];
    }
    Flags flags;
    for (const auto& [link, what] : seen)
        for (const auto& [symptom, bad] : what.bad)
            if (is_confirmed(symptom, bad, what.passes)) flags[link].insert(symptom);
    return flags;
}

// Finds the subjects that explain the confirmed flags. After it has found a subject, it removes the
// flags that this subject explains.
class Judge {
  public:
    explicit Judge(const HealthSamples& samples)
        : samples_(samples),
          node_count_(static_cast<int>(samples.host_names.size())),
          flags_(confirmed_flags(samples)) {}

    std::vector<HealthFinding> run();

  private:
    struct Coverage {
        int out = 0;
        int in = 0;
    };

    [[nodiscard]] Coverage coverage(int node, bool only_directed) const;
    [[nodiscard]] bool covers(int count) const;
    [[nodiscard]] bool is_everything() const;
    bool take_host();
    void take_itself();
    void take_links();
    void take_faults();
    void add(HealthFinding::Subject subject, std::vector<int64_t> nodes, const std::string& name,
             const std::vector<NodeLink>& links);
    [[nodiscard]] const std::string& name(int node) const { return samples_.host_names[node]; }
    [[nodiscard]] std::string figures(const std::vector<NodeLink>& links) const;

    const HealthSamples& samples_;
    int node_count_;
    Flags flags_;
    std::vector<HealthFinding> findings_;
};

Judge::Coverage Judge::coverage(int node, bool only_directed) const {
    Coverage found;
    for (const auto& [link, symptoms] : flags_) {
        if (link.from == link.to) continue;
        const bool directed = std::any_of(symptoms.begin(), symptoms.end(), has_direction);
        if (only_directed && !directed) continue;
        found.out += link.from == node ? 1 : 0;
        found.in += link.to == node ? 1 : 0;
    }
    return found;
}

// Returns true if COUNT is the number of all links of a host in one direction. If a host has more
// than three such links, three quarters of them are enough, since one may look good by chance.
bool Judge::covers(int count) const {
    const int ways = node_count_ - 1;
    return count >= (ways <= 3 ? ways : (3 * ways + 3) / 4);
}

bool Judge::is_everything() const {
    const auto ways = std::count_if(flags_.begin(), flags_.end(), [](const auto& entry) {
        return entry.first.from != entry.first.to;
    });
    return node_count_ > 2 && ways == static_cast<long>(node_count_) * (node_count_ - 1);
}

void Judge::add(HealthFinding::Subject subject, std::vector<int64_t> nodes, const std::string& name,
                const std::vector<NodeLink>& links) {
    HealthFinding finding;
    finding.subject = subject;
    finding.nodes = std::move(nodes);
    finding.text = name + ": " + figures(links);
    findings_.push_back(std::move(finding));
    for (const NodeLink& link : links) flags_.erase(link);
}

// Blames a host if all, or nearly all, of its links in one direction are flagged (covers()). Of
// several such hosts, blames the one with the most flagged links. Returns true if it blames a host.
bool Judge::take_host() {
    if (node_count_ < 3) return false;
    int worst = -1;
    int most = 0;
    for (int node = 0; node < node_count_; ++node) {
        const Coverage found = coverage(node, false);
        if (!covers(found.out) && !covers(found.in)) continue;
        if (found.out + found.in > most) {
            most = found.out + found.in;
            worst = node;
        }
    }
    if (worst < 0) return false;
    Coverage directed = coverage(worst, true);
    if (!covers(directed.out) && !covers(directed.in)) directed = {node_count_, node_count_};
    std::string text = "host " + name(worst);
    if (!covers(directed.in)) text += ", when it sends";
    if (!covers(directed.out)) text += ", when it receives";
    std::vector<NodeLink> links;
    for (const auto& [link, symptoms] : flags_)
        if (link.from == worst || link.to == worst) links.push_back(link);
    add(HealthFinding::Subject::kHost, {worst}, text, links);
    return true;
}

// Blames hosts whose own loopback or processor is slow, even though not all of their links are
// slow.
void Judge::take_itself() {
    for (int node = 0; node < node_count_; ++node)
        if (flags_.count({node, node}) != 0)
            add(HealthFinding::Subject::kHost, {node}, "host " + name(node) + " itself",
                {{node, node}});
}

void Judge::take_links() {
    while (!flags_.empty()) {
        const NodeLink link = flags_.begin()->first;
        const NodeLink back = {link.to, link.from};
        const auto is_directed = [&](const NodeLink& one) {
            const auto found = flags_.find(one);
            return found != flags_.end() &&
                   std::any_of(found->second.begin(), found->second.end(), has_direction);
        };
        std::vector<NodeLink> both = {link};
        if (flags_.count(back) != 0) both.push_back(back);
        const bool there = is_directed(link);
        const bool here = is_directed(back);
        if (there != here) {
            const NodeLink one = there ? link : back;
            add(HealthFinding::Subject::kDirection, {one.from, one.to},
                fmt::format("from {} to {}, but not back", name(one.from), name(one.to)), both);
        } else {
            add(HealthFinding::Subject::kLink, {link.from, link.to},
                fmt::format("between {} and {}", name(link.from), name(link.to)), both);
        }
    }
}

void Judge::take_faults() {
    for (const HealthFault& fault : samples_.faults) {
        HealthFinding finding;
        finding.subject = HealthFinding::Subject::kRank;
        finding.rank = fault.rank;
        finding.text = fault.text;
        findings_.push_back(std::move(finding));
    }
}

std::string Judge::figures(const std::vector<NodeLink>& links) const {
    Symptoms all;
    for (const NodeLink& link : links)
        if (const auto found = flags_.find(link); found != flags_.end())
            all.insert(found->second.begin(), found->second.end());
    LinkFigures bad;
    LinkFigures good;
    for (const LinkSample& sample : samples_.links) {
        const NodeLink link = link_of(sample);
        const bool inside = link.from == link.to;
        const auto flagged = flags_.find(link);
        if (std::find(links.begin(), links.end(), link) != links.end()) {
            // The text names only the rates of slow links.
            bad.add(sample, flagged != flags_.end() && flagged->second.count(Symptom::kRate) != 0);
        } else if (flagged == flags_.end() && inside == (links.front().from == links.front().to)) {
            good.add(sample, true);
        }
    }
    std::vector<std::string> parts;
    if (all.count(Symptom::kBroken) != 0) parts.push_back(bad.error());
    if (all.count(Symptom::kWrong) != 0) parts.push_back(bad.wrong());
    if (all.count(Symptom::kRate) != 0) parts.push_back(bad.rate(good));
    if (all.count(Symptom::kLoss) != 0) parts.push_back(bad.loss());
    if (all.count(Symptom::kDuplicates) != 0) parts.push_back(bad.duplicates());
    if (all.count(Symptom::kDelay) != 0) parts.push_back(bad.delay(good));
    if (all.count(Symptom::kTail) != 0) parts.push_back(bad.tail(good));
    if (all.count(Symptom::kBusy) != 0)
        parts.push_back(busy_text(samples_.hosts, links.front().from));
    return join_parts(parts);
}

std::vector<HealthFinding> Judge::run() {
    if (is_everything()) {
        std::vector<NodeLink> links;
        for (const auto& [link, symptoms] : flags_)
            if (link.from != link.to) links.push_back(link);
        add(HealthFinding::Subject::kEverything, {}, "every link between the hosts", links);
    }
    while (take_host()) {
    }
    take_itself();
    take_links();
    take_faults();
    return std::move(findings_);
}

// Returns true if LINK needs no further pass, because it has failed twice. Another pass would only
// wait for it again.
bool is_settled(const HealthSamples& samples, const NodeLink& link) {
    return std::count_if(samples.links.begin(), samples.links.end(), [&](const LinkSample& s) {
               return link_of(s) == link && !s.error.empty();
           }) > 1;
}

}  // namespace

std::vector<NodeLink> links_to_repeat(const HealthSamples& samples, int pass) {
    const Flags flags = flags_of_pass(samples, pass);
    if (flags.empty()) return {};
    std::vector<NodeLink> links;
    for (const auto& [link, symptoms] : flags)
        if (!is_settled(samples, link)) links.push_back(link);
    for (const bool inside : {false, true}) {
        const auto bad = static_cast<size_t>(
            std::count_if(links.begin(), links.end(),
                          [&](const NodeLink& link) { return (link.from == link.to) == inside; }));
        if (bad == 0) continue;
        size_t wanted = std::max(kSpreadSamples, 2 * bad);
        for (const LinkSample& sample : samples.links) {
            const NodeLink link = link_of(sample);
            if (sample.pass != pass || wanted == 0 || (link.from == link.to) != inside) continue;
            if (flags.count(link) != 0) continue;
            links.push_back(link);
            --wanted;
        }
    }
    return links;
}

std::vector<HealthFinding> judge(const HealthSamples& samples) {
    return Judge(samples).run();
}

bool has_broken_path(const HealthSamples& samples) {
    const Flags flags = confirmed_flags(samples);
    return std::any_of(flags.begin(), flags.end(),
                       [](const auto& entry) { return entry.second.count(Symptom::kBroken) != 0; });
}

const char* subject_name(HealthFinding::Subject subject) {
    static constexpr const char* kNames[] = {"host", "link", "direction", "rank", "everything"};
    return kNames[static_cast<size_t>(subject)];
}

}  // namespace dslaunch::health
