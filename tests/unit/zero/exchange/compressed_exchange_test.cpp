// The average over hosts in 1 bit per element, compared with the algorithm written naively: over
// worlds of 1 to 17 hosts and odd lengths, in rounds that feed back their errors.
#include "zero/exchange/compressed_exchange.h"

#include <bit>
#include <cmath>
#include <random>

#include "plan/layout/partition.h"
#include "support/catch.h"
#include "support/world.h"

namespace dslaunch {

using namespace runtime;
using namespace zero;
namespace {

using testing::InProcessRank;
using testing::InProcessWorld;

constexpr int kRounds = 5;

plan::FlatLayout layout_of(const std::vector<int64_t>& numels, int64_t block_numel) {
    plan::ModelInfo model;
    plan::SegmentInfo segment;
    for (const int64_t numel : numels) {
        segment.parameters.push_back(static_cast<int>(model.parameters.size()));
        model.parameters.push_back({"p", numel, 4, true});
    }
    model.segments.push_back(segment);
    plan::FlatLayoutOptions options;
    options.block_numel = block_numel;
    return plan::make_flat_layout(model, options);
}

// Returns host NODE's value of an element in ROUND. Some values are 0.
float value_of(int round, int node, int64_t element) {
    std::mt19937 random(static_cast<unsigned>(round * 7919 + node * 104'729 + element));
    return random() % 11 == 0 ? 0.0F : std::normal_distribution<float>()(random);
}

// Section 4 of the paper for one block, host by host. It changes the errors and returns the
// averages of all hosts. Sums of squares are in fp64.
class NaiveBlock {
  public:
    NaiveBlock(int nodes, int64_t numel)
        : worker_(static_cast<size_t>(nodes), std::vector<float>(static_cast<size_t>(numel))),
          server_(static_cast<size_t>(numel)) {}

    std::vector<float> average(const std::vector<std::vector<float>>& values) {
        std::vector<float> sum(server_.size(), 0.0F);
        for (size_t node = 0; node < values.size(); ++node) {
            const std::vector<float> told = compressed(values[node], 1.0F, worker_[node]);
            for (size_t i = 0; i < sum.size(); ++i) sum[i] = node == 0 ? told[i] : sum[i] + told[i];
        }
        return compressed(sum, 1.0F / static_cast<float>(values.size()), server_);
    }

  private:
    static std::vector<float> compressed(const std::vector<float>& values, float factor,
                                         std::vector<float>& error) {
        double lanes[16] = {};
        for (size_t i = 0; i < values.size(); ++i) {
            error[i] = values[i] * factor + error[i];
            lanes[i % 16] += double{error[i]} * double{error[i]};
        }
        double squares = 0;
        for (const double lane : lanes) squares += lane;
        const auto scale =
            static_cast<float>(std::sqrt(squares / static_cast<double>(values.size())));
        std::vector<float> told;
        for (float& e : error) {
            told.push_back(e >= 0 ? scale : -scale);
            e -= told.back();
        }
        return told;
    }

    std::vector<std::vector<float>> worker_;
    std::vector<float> server_;
};

// The averages of a bucket by round, without padding.
using Rounds = std::vector<std::vector<float>>;

Rounds naive_rounds(const plan::FlatLayout& layout, int nodes) {
    Rounds rounds(kRounds);
    for (const plan::LayoutBlock& block : plan::blocks_of(layout, 0)) {
        NaiveBlock naive(nodes, block.numel);
        for (int round = 0; round < kRounds; ++round) {
            std::vector<std::vector<float>> values;
            for (int node = 0; node < nodes; ++node) {
                std::vector<float>& own = values.emplace_back();
                for (int64_t i = 0; i < block.numel; ++i)
                    own.push_back(value_of(round, node, block.begin + i));
            }
            const std::vector<float> averages = naive.average(values);
            rounds[round].insert(rounds[round].end(), averages.begin(), averages.end());
        }
    }
    return rounds;
}

Rounds run_rank(const plan::FlatLayout& layout, const ExchangeSlices& slices, InProcessRank& self) {
    const Topology& topology = self.collectives->topology();
    const ShardMap map(layout, nullptr, 0, topology, false);
    CompressedExchange exchange(map, slices, *self.arena, *self.group, *self.collectives);
    CHECK(exchange.state_names().empty());
    Rounds rounds;
    for (int round = 0; round < kRounds; ++round) {
        const std::span<float> values = exchange.begin(0);
        const Range own =
            part_range(std::ssize(values), {topology.local_rank, topology.local_world_size()});
        for (int64_t i = own.begin; i < own.end(); ++i)
            values[static_cast<size_t>(i)] = value_of(round, topology.node_rank, i);
        exchange.average(0);
        const std::span<const float> averaged = exchange.averaged(0);
        std::vector<float>& mine = rounds.emplace_back();
        for (const plan::LayoutBlock& block : plan::blocks_of(layout, 0))
            mine.insert(mine.end(), averaged.begin() + block.begin,
                        averaged.begin() + block.begin + block.numel);
        exchange.end();
    }
    CHECK(std::ssize(exchange.state_names()) == 1 + topology.node_count());
    return rounds;
}

// The averages that every rank gets, and the bytes that each host sent.
struct World {
    std::vector<Rounds> ranks;
    std::vector<Bytes> sent;
};

World exchange_in(const std::vector<int>& node_sizes, const plan::FlatLayout& layout) {
    ExchangeSlices slices;
    InProcessWorld world({node_sizes, std::chrono::seconds(60)}, [&](ArenaLayout& arena) {
        slices = CompressedExchange::add_slices(layout, arena);
    });
    World result;
    result.ranks.resize(static_cast<size_t>(world.world_size()));
    std::vector<Bytes> sent(result.ranks.size());
    run_world(world, [&](InProcessRank& self, int rank) {
        result.ranks[rank] = run_rank(layout, slices, self);
        sent[rank] = self.collectives->traffic().all().sent;
    });
    size_t rank = 0;
    for (const int size : node_sizes) {
        Bytes& of_host = result.sent.emplace_back();
        for (int local = 0; local < size; ++local) of_host += sent[rank++];
    }
    return result;
}

bool same_bits(const Rounds& a, const Rounds& b) {
    if (a.size() != b.size()) return false;
    for (size_t round = 0; round < a.size(); ++round) {
        if (a[round].size() != b[round].size()) return false;
        for (size_t i = 0; i < a[round].size(); ++i)
            if (std::bit_cast<uint32_t>(a[round][i]) != std::bit_cast<uint32_t>(b[round][i]))
                return false;
    }
    return true;
}

}  // namespace

TEST_CASE("every rank of 2 to 17 hosts gets the averages of the algorithm") {
    for (int nodes = 2; nodes <= 17; ++nodes) {
        INFO(nodes << " hosts");
        const plan::FlatLayout layout = layout_of({1, 37, 1021, 513}, 256);
        const Rounds expected = naive_rounds(layout, nodes);
        const World world = exchange_in(std::vector<int>(static_cast<size_t>(nodes), 1), layout);
        for (const Rounds& rank : world.ranks) CHECK(same_bits(rank, expected));
    }
}

TEST_CASE("hosts of several ranks, also unequally many, come to the same bits") {
    const plan::FlatLayout layout = layout_of({1, 37, 1021, 513}, 64);
    for (const std::vector<int>& sizes :
         {std::vector<int>{2, 2}, {3, 3}, {3, 1}, {1, 2, 3}, {2, 2, 2}}) {
        INFO(sizes.size() << " hosts, the first of " << sizes.front());
        const Rounds expected = naive_rounds(layout, static_cast<int>(sizes.size()));
        const World world = exchange_in(sizes, layout);
        for (const Rounds& rank : world.ranks) CHECK(same_bits(rank, expected));
        // The bytes are the plan's bytes.
        const int bridges = *std::min_element(sizes.begin(), sizes.end());
        const plan::SignRuns runs(layout, 0, static_cast<int>(sizes.size()), bridges);
        for (size_t node = 0; node < sizes.size(); ++node)
            CHECK(world.sent[node].value == kRounds * runs.sent_by(static_cast<int>(node)).value);
    }
}

TEST_CASE("odd lengths and few elements are exchanged too") {
    for (const int64_t numel : {1, 2, 3, 7, 8, 9, 63, 65})
        for (const int nodes : {2, 3, 5}) {
            INFO(numel << " elements, " << nodes << " hosts");
            const plan::FlatLayout layout = layout_of({numel}, 16);
            const World world =
                exchange_in(std::vector<int>(static_cast<size_t>(nodes), 1), layout);
            const Rounds expected = naive_rounds(layout, nodes);
            for (const Rounds& rank : world.ranks) CHECK(same_bits(rank, expected));
        }
}

// The control: if the lost parts are thrown away, the sums of rounds drift away from the true sums.
TEST_CASE("what compression loses in one round comes back in the next ones") {
    const plan::FlatLayout layout = layout_of({2000}, 250);
    const int nodes = 3;
    const World world = exchange_in({1, 1, 1}, layout);
    double told = 0, true_sum = 0, off = 0, off_without = 0;
    const Rounds& rounds = world.ranks[0];
    for (int64_t i = 0; i < 2000; ++i) {
        double sum = 0, exact = 0;
        for (int round = 0; round < kRounds; ++round) {
            sum += rounds[round][static_cast<size_t>(i)];
            for (int node = 0; node < nodes; ++node) exact += value_of(round, node, i) / 3.0;
        }
        told += sum;
        true_sum += exact;
        off += (sum - exact) * (sum - exact);
    }
    // Without feedback, each round is independent of the others.
    for (int64_t b = 0; b < 8; ++b) {
        std::vector<double> sums(250, 0), exact(250, 0);
        for (int round = 0; round < kRounds; ++round) {
            NaiveBlock fresh(nodes, 250);
            std::vector<std::vector<float>> values(3);
            for (int node = 0; node < nodes; ++node)
                for (int64_t i = 0; i < 250; ++i)
                    values[node].push_back(value_of(round, node, b * 250 + i));
            const std::vector<float> averages = fresh.average(values);
            for (size_t i = 0; i < 250; ++i) {
                sums[i] += averages[i];
                for (const std::vector<float>& own : values) exact[i] += own[i] / 3.0;
            }
        }
        for (size_t i = 0; i < 250; ++i) off_without += (sums[i] - exact[i]) * (sums[i] - exact[i]);
    }
    CHECK(off < 0.7 * off_without);
}

}  // namespace dslaunch
