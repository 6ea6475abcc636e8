#include "runtime/comm/pair_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <random>

#include "base/check.h"
#include "base/error.h"
#include "base/text.h"
#include "health/health_schedule.h"
#include "health/health_verdict.h"

namespace dslaunch::runtime {
namespace {

constexpr Duration kSlack = std::chrono::seconds(2);

ProbeToken new_token() {
    std::random_device device;
    ProbeToken token{};
    for (uint64_t& word : token) word = (static_cast<uint64_t>(device()) << 32) | device();
    return token;
}

std::string links_text(const std::vector<health::NodeLink>& links) {
    std::string text;
    for (const health::NodeLink& link : links)
        text += fmt::format("{}{}>{}", text.empty() ? "" : ",", link.from, link.to);
    return text;
}

std::vector<health::NodeLink> parse_links(const std::string& text) {
    std::vector<health::NodeLink> links;
    if (text.empty()) return links;
    for (const std::string& word : split(text, ',')) {
        const std::vector<std::string> ends = split(word, '>');
        DSL_CHECK(ends.size() == 2, "a link {}", word);
        links.push_back({static_cast<int>(parse_int(ends[0]).value_or(0)),
                         static_cast<int>(parse_int(ends[1]).value_or(0))});
    }
    return links;
}

class Search {
  public:
    Search(const PairSearchOptions& options, const PairSearchSeams& seams)
        : options_(options), seams_(seams) {
        const Topology& topology = options.topology;
        for (int node = 0; node < topology.node_count(); ++node)
            leaders_.push_back(topology.first_rank(node));
        samples_.host_names.resize(static_cast<size_t>(topology.node_count()));
        const ProbeLimits& limits = options.limits;
        round_limit_ = 3 * limits.connect + limits.latency + limits.burst + kSlack;
    }

    PairSearchResult run() {
        introduce();
        std::vector<health::NodeLink> inside;
        for (int other = 0; other < node_count(); ++other) inside.push_back({other, other});
        std::vector<health::LinkRound> rounds = health::all_link_rounds(node_count());
        for (int pass = 1;; ++pass) {
            measure_itself(inside, pass);
            for (size_t i = 0; i < rounds.size(); ++i)
                run_round(rounds[i], pass, static_cast<int>(i) + 1);
            share(pass);
            const std::vector<health::NodeLink> again = next_links(pass);
            if (again.empty()) break;
            inside.clear();
            std::vector<health::NodeLink> between;
            for (const health::NodeLink& link : again)
                (link.from == link.to ? inside : between).push_back(link);
            rounds = health::rounds_of(between);
        }
        if (node() != 0) {
            const std::string result = must_get("search/result", 0);
            return static_cast<PairSearchResult>(parse_int(result).value_or(0));
        }
        PairSearchResult result = PairSearchResult::kHealthy;
        if (!health::judge(samples_).empty()) result = PairSearchResult::kFound;
        if (health::has_broken_path(samples_)) result = PairSearchResult::kBroken;
        seams_.board.set("search/result", std::to_string(static_cast<int>(result)));
        return result;
    }

  private:
    [[nodiscard]] int node() const { return options_.topology.node_rank; }
    [[nodiscard]] int node_count() const { return options_.topology.node_count(); }
    [[nodiscard]] std::string must_get(const std::string& key, int from_node) {
        auto value = seams_.board.get(key, round_limit_);
        if (!value) blame(options_.topology.first_rank(from_node), key);
        return std::move(*value);
    }
    [[noreturn]] void blame(int rank, const std::string& what) {
        const std::string text =
            fmt::format("rank {} does not answer: it did not reach {}", rank, what);
        seams_.report(health::HealthFault{rank, text});
        fail(ExitCode::kHang, "{}; it is stopped or cut off from rank 0, or its host is too slow",
             text);
    }
    void come_together(const std::string& name) {
        seams_.enter(name, round_limit_ + 2 * kSlack);
        const std::vector<int> missing =
            meet(seams_.board, {name, leaders_, options_.topology.rank(), round_limit_});
        if (!missing.empty()) blame(missing.front(), name);
    }
    // Sends every host's listening address to all hosts. Also sends node 0's token, which the
    // servers require.
    void introduce() {
        seams_.enter("the beginning of the search for slow links", round_limit_ + 2 * kSlack);
        if (node() == 0) {
            token_ = new_token();
            seams_.board.set("search/token", fmt::format("{} {}", token_[0], token_[1]));
        } else {
            const std::vector<std::string> words = split(must_get("search/token", 0), ' ');
            DSL_CHECK(words.size() == 2,
                      "the token for the search for slow links has {} words, not 2", words.size());
            for (size_t i = 0; i < 2; ++i) token_[i] = std::stoull(words[i]);
        }
        server_ = std::make_unique<ProbeServer>(options_.address, token_);
        seams_.board.set(fmt::format("search/place/{}", node()),
                         fmt::format("{} {}", options_.address, server_->port()));
        come_together("the search for slow links");
        for (int other = 0; other < node_count(); ++other) {
            const std::vector<std::string> words =
                split(must_get(fmt::format("search/place/{}", other), other), ' ');
            DSL_CHECK(words.size() == 2, "the listening address of a host has {} words, not 2",
                      words.size());
            places_[other] = {options_.address, words[0],
                              static_cast<int>(parse_int(words[1]).value_or(0))};
        }
    }

    void run_round(const health::LinkRound& round, int pass, int number) {
        for (const health::NodeLink& link : round) {
            if (link.from != node()) continue;
            seams_.enter(
                fmt::format("pass {} of the search for slow links, to node {}", pass, link.to),
                round_limit_ + 2 * kSlack);
            measure(link, pass);
        }
        come_together(fmt::format("pass {} of the search for slow links, round {}", pass, number));
    }

    // Measures LINK. If the peer's answers were changed in transit, also reports wrong data on the
    // link in the opposite direction. The peer's probe of that link may not notice a few changed
    // bytes.
    void measure(const health::NodeLink& link, int pass) {
        auto [way, wrong_back] = probe_link(places_.at(link.to), token_, options_.limits);
        way.from = link.from;
        way.to = link.to;
        way.pass = pass;
        keep(way);
        if (wrong_back == 0) return;
        health::LinkSample back;
        back.from = link.to;
        back.to = link.from;
        back.pass = pass;
        back.wrong = wrong_back;
        keep(back);
    }

    void keep(const health::LinkSample& sample) {
        own_.emplace_back(sample);
        seams_.report(sample);
    }
    void measure_itself(const std::vector<health::NodeLink>& links, int pass) {
        const bool wanted = std::any_of(
            links.begin(), links.end(),
            [&](const health::NodeLink& link) { return link.from == node() && link.to == node(); });
        if (wanted) {
            const health::HostSample host{node(), pass, time_processor().count()};
            own_.emplace_back(host);
            seams_.report(host);
            measure({node(), node()}, pass);
        }
        come_together(fmt::format("pass {} of the search for slow links, inside each host", pass));
    }

    void share(int pass) {
        seams_.board.set(fmt::format("search/pass/{}/{}", pass, node()),
                         encode(health::HealthRecords{std::move(own_)}));
        own_.clear();
    }
    std::vector<health::NodeLink> next_links(int pass) {
        const std::string key = fmt::format("search/again/{}", pass);
        if (node() != 0) return parse_links(must_get(key, 0));
        for (int other = 0; other < node_count(); ++other) {
            const std::string text = must_get(fmt::format("search/pass/{}/{}", pass, other), other);
            const auto theirs = decode<health::HealthRecords>(text);
            for (const health::HealthRecord& record : theirs.records) {
                if (const auto* link = std::get_if<health::LinkSample>(&record))
                    samples_.links.push_back(*link);
                if (const auto* host = std::get_if<health::HostSample>(&record))
                    samples_.hosts.push_back(*host);
            }
        }
        std::vector<health::NodeLink> links;
        if (pass < health::kHealthPasses) links = health::links_to_repeat(samples_, pass);
        seams_.board.set(key, links_text(links));
        return links;
    }

    const PairSearchOptions& options_;
    const PairSearchSeams& seams_;
    std::vector<int> leaders_;
    Duration round_limit_{};
    ProbeToken token_{};
    std::unique_ptr<ProbeServer> server_;
    std::map<int, ProbePlace> places_;       // one per node
    std::vector<health::HealthRecord> own_;  // records of the pass under way
    health::HealthSamples samples_;          // on node 0: the samples of all nodes
};

}  // namespace

PairSearchResult search_pairs(const PairSearchOptions& options, const PairSearchSeams& seams) {
    DSL_CHECK(options.topology.local_rank == 0,
              "local rank {} cannot search for slow links; only local rank 0 can",
              options.topology.local_rank);
    return Search(options, seams).run();
}

}  // namespace dslaunch::runtime
