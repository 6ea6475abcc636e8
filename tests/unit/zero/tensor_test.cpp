// Tensor groups must train as one rank does: at every ZeRO stage and with data parallelism, through
// the real trainer and the shared memory of a host.
#include <ATen/ops/arange.h>

#include <cmath>
#include <thread>

#include "graph/sharing/share_of.h"
#include "graph/tensor/tensor_rank.h"
#include "graph/tensor/tensor_rewrite.h"
#include "runtime/compute/tensor_collectives.h"
#include "support/catch.h"
#include "support/hang.h"
#include "training_world.h"

namespace dslaunch {

using namespace config;
using namespace graph;
using namespace plan;
using namespace runtime;
using namespace zero;
namespace {

using testing::RankOutcome;
using testing::TrainedModel;
using testing::TrainingCase;
using testing::TrainingSetup;

constexpr int64_t kWidth = 12, kHeadWidth = 3, kVocabulary = 13, kTokens = 8;

// A decoder layer. It has four heads of queries, one head of keys, which two ranks must both
// compute, a table of 13 rows that is tied to the classes, and dropout of split and of whole
// values.
const char* const kDecoder =
    "def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:\n"
    "    x = torch.embedding(self.wte, tokens) + self.wpe\n"
    "    B, T, C = x.size()\n"
    "    h = torch.layer_norm(x, [12], self.norm1, self.shift1, 1e-5)\n"
    "    q = torch.linear(h, self.wq, self.bq).view([B, T, 4, 3]).transpose(1, 2)\n"
    "    k = torch.linear(h, self.wk).view([B, T, 1, 3]).transpose(1, 2)\n"
    "    v = torch.linear(h, self.wv).view([B, T, 1, 3]).transpose(1, 2)\n"
    "    a = torch.scaled_dot_product_attention(q, k, v, None, 0.0, True, scale=None, "
    "enable_gqa=True)\n"
    "    a = a.transpose(1, 2).reshape([B, T, C])\n"
    "    x = x + torch.dropout(torch.linear(a, self.wo, self.bo), 0.2, True)\n"
    "    h = torch.layer_norm(x, [12], self.norm2, None, 1e-5)\n"
    "    h = torch.dropout(torch.gelu(torch.linear(h, self.fc, self.fb)), 0.2, True)\n"
    "    x = x + torch.linear(h, self.out)\n"
    "    logits = torch.linear(x, self.wte)\n"
    "    return torch.cross_entropy_loss(logits.flatten(0, 1), targets.flatten(), None, 1, -100, "
    "0.0)\n";

TrainedModel decoder() {
    using testing::wave;
    const test::NamedTensors parameters = {{"wte", wave({kVocabulary, kWidth}, 0.1) * 0.5},
                                           {"wpe", wave({kTokens, kWidth}, 0.2) * 0.5},
                                           {"norm1", wave({kWidth}, 0.3) * 0.3 + 1},
                                           {"shift1", wave({kWidth}, 0.4) * 0.1},
                                           {"wq", wave({kWidth, kWidth}, 0.5) * 0.5},
                                           {"bq", wave({kWidth}, 0.6) * 0.1},
                                           {"wk", wave({kHeadWidth, kWidth}, 0.7) * 0.5},
                                           {"wv", wave({kHeadWidth, kWidth}, 0.8) * 0.5},
                                           {"wo", wave({kWidth, kWidth}, 0.9) * 0.5},
                                           {"bo", wave({kWidth}, 1.0) * 0.1},
                                           {"norm2", wave({kWidth}, 1.1) * 0.3 + 1},
                                           {"fc", wave({4 * kWidth, kWidth}, 1.2) * 0.4},
                                           {"fb", wave({4 * kWidth}, 1.3) * 0.1},
                                           {"out", wave({kWidth, 4 * kWidth}, 1.4) * 0.4}};
    return {test::script_model(kDecoder, parameters),
            {},
            [](const SegmentedModel&, int64_t micro_batch) -> std::vector<c10::IValue> {
                const at::Tensor counts = at::arange(2 * kTokens, at::kLong) + 11 * micro_batch;
                at::Tensor targets = (counts * 5 + 1).remainder(kVocabulary).view({2, kTokens});
                targets[1][2] = -100;
                return {(counts * 7).remainder(kVocabulary).view({2, kTokens}), targets};
            }};
}

struct TensorJob {
    TrainingCase job;  // with the node_sizes of ranks with the same shares
    int ranks = 2;     // ranks that share each layer
    std::vector<int> tensor_hosts = {2};
    bool tell_zero = true;  // true: ZeRO knows of the group
    bool share_positions = false;
    bool sequence = false;  // ranks share only positions
};

TrainingCase decoder_job() {
    TrainingCase job;
    job.make_model = decoder;
    job.optimizer.kind = OptimizerKind::kSgd;
    job.optimizer.lr = 0.05;
    job.clipping = 0.5;
    job.accumulation = 2;
    job.bucket_numel_max = 300;
    job.steps = 3;
    job.segments = 4;
    return job;
}

// One tensor rank's part of a job.
struct ShareSetup {
    TrainingSetup setup;
    TensorModel tensor;

    ShareSetup(const TensorJob& split, int index)
        : setup(split.job), tensor(rewritten(setup, split)) {
        const TrainingCase& job = split.job;
        setup.segmented = SegmentedModel::of_graph(setup.model(), tensor.lowered, job.segments);
        narrow_to_shares(setup.model(), tensor.plan, {index, split.ranks});
        LoneTensorGroup alone({index, split.ranks});
        const TensorGroupScope scope(&alone);
        setup.info = measure(setup.segmented, setup.batch(0));
        setup.layout =
            make_flat_layout(setup.info, {job.bucket_numel_max, job.bucket_numel_min, true,
                                          job.persistent_numel_max, job.block_numel});
        setup.partition = make_partition(setup.layout, setup.info, job.shard, job.world_size());
    }

  private:
    static TensorModel rewritten(TrainingSetup& setup, const TensorJob& split) {
        const at::NoGradGuard no_grad;
        GraphInputs inputs;
        inputs.arguments = setup.segmented.first_inputs(setup.batch(0));
        for (const ModelParameter& parameter : setup.model().parameters())
            inputs.parameters.push_back(parameter.tensor.detach());
        if (split.sequence)
            return make_sequence_parallel(setup.model(), setup.segmented.lowered(), inputs,
                                          split.ranks);
        TensorRules rules;
        rules.size = split.ranks;
        rules.share_positions = split.share_positions;
        return make_tensor_parallel(setup.model(), setup.segmented.lowered(), inputs, rules);
    }
};

// All ranks, as threads. Ranks with the same shares are a world, ranks that share a layer a group.
class TensorWorld {
  public:
    explicit TensorWorld(const TensorJob& split) : split_(split) {
        const TrainingCase& job = split.job;
        all_.emplace(testing::InProcessOptions{{split.ranks * job.world_size()}, kLimit},
                     [](ArenaLayout&) {});
        for (int index = 0; index < split.ranks; ++index) {
            slices_.emplace_back();
            const ShareSetup share(split, index);
            shares_.push_back(std::make_unique<testing::InProcessWorld>(
                testing::InProcessOptions{job.node_sizes, kLimit}, [&](ArenaLayout& arena) {
                    std::vector<ZeroSlices>& of_nodes = slices_.back();
                    const Topology topology{job.node_sizes, static_cast<int>(of_nodes.size()), 0};
                    const testing::Planned planned(job, share.setup, topology);
                    of_nodes.push_back(ZeroState::add_slices(planned.place(share.setup),
                                                             job.precision.compute, arena));
                }));
        }
        for (int rank = 0; rank < job.world_size(); ++rank)
            groups_.push_back(std::make_unique<testing::InProcessWorld>(
                testing::InProcessOptions{split.tensor_hosts, kLimit}, [&](ArenaLayout& arena) {
                    // The chunk is far below the real one, so that tensors take several chunks.
                    group_slices_ = add_tensor_group(arena, Bytes{1024});
                }));
    }

    // Returns the outcome of the first rank with each share, by tensor rank.
    std::vector<RankOutcome> train() {
        const int copies = split_.job.world_size();
        std::vector<RankOutcome> outcomes(static_cast<size_t>(copies * split_.ranks));
        std::vector<std::string> errors(outcomes.size());
        {
            std::vector<std::jthread> threads;
            for (int i = 0; i < std::ssize(outcomes); ++i)
                threads.emplace_back([&, i] {
                    try {
                        outcomes[i] = train_rank(i / copies, i % copies);
                    } catch (const std::exception& error) {
                        errors[i] = error.what();
                    }
                });
        }
        for (const std::string& error : errors)
            if (!error.empty()) throw std::runtime_error(error);
        for (int index = 1; index < split_.ranks; ++index)
            outcomes[index] = outcomes[index * copies];
        outcomes.resize(static_cast<size_t>(split_.ranks));
        return outcomes;
    }

  private:
    static constexpr auto kLimit = test::kHangTime;

    RankOutcome train_rank(int index, int rank) {
        const TrainingCase& job = split_.job;
        ShareSetup own(split_, index);
        testing::InProcessRank world = all_->enter(index * job.world_size() + rank);
        testing::InProcessRank self = shares_[index]->enter(rank);
        testing::InProcessRank beside = groups_[rank]->enter(index);
        const auto made = make_tensor_group(*beside.collectives, group_slices_);
        TensorGroup& group = *made;
        const TensorRank tensor{&group, &own.tensor.plan};
        const Topology& topology = self.collectives->topology();
        const testing::Planned planned(job, own.setup, topology);
        RankOutcome outcome;
        try {
            ZeroState state(own.setup.model(), planned.place(own.setup),
                            slices_[index][topology.node_rank], *self.arena, *self.group,
                            *self.collectives,
                            {job.optimizer,
                             job.clipping,
                             job.precision.compute,
                             job.precision.skip_nonfinite_steps,
                             nullptr,
                             {},
                             split_.tell_zero ? &tensor : nullptr});
            const TensorGroupScope scope(&group);
            testing::TrainPlace place{&topology, {}, {}};
            outcome = testing::train_with(job, own.setup, planned.plan, state, *world.collectives,
                                          {}, nullptr, {}, &place);
            testing::bring_into_model(state, own.setup.model());
            testing::collect_tensors(own.setup, state, outcome);
            world.collectives->barrier();
        } catch (const std::exception& error) {
            for (testing::InProcessRank* part : {&world, &self, &beside})
                part->collectives->poison(error.what());
            throw;
        }
        return outcome;
    }

    TensorJob split_;
    std::optional<testing::InProcessWorld> all_;
    std::vector<std::unique_ptr<testing::InProcessWorld>> shares_;
    std::vector<std::vector<ZeroSlices>> slices_;  // slices by tensor rank and host
    std::vector<std::unique_ptr<testing::InProcessWorld>> groups_;
    TensorGroupSlices group_slices_{};
};

// Trains with ranks that share positions and are neighbours in the world over which ZeRO shards.
// Their gradients are summed with the gradients of other samples, and no weight is kept twice.
std::vector<RankOutcome> train_positions_in_world(const TensorJob& split) {
    const int ranks = split.ranks;
    TensorJob wide = split;  // the world of `wide` has all ranks
    for (int& size : wide.job.node_sizes) size *= ranks;
    const TrainingCase& job = wide.job;
    const auto limit = test::kHangTime;
    std::vector<std::unique_ptr<testing::InProcessWorld>> groups;
    TensorGroupSlices group_slices{};
    for (int group = 0; group < split.job.world_size(); ++group)
        groups.push_back(std::make_unique<testing::InProcessWorld>(
            testing::InProcessOptions{split.tensor_hosts, limit},
            [&](ArenaLayout& arena) { group_slices = add_tensor_group(arena, Bytes{1024}); }));
    const ShareSetup share(wide, 0);
    std::vector<ZeroSlices> slices;
    testing::InProcessWorld world({job.node_sizes, limit}, [&](ArenaLayout& arena) {
        const Topology topology{job.node_sizes, static_cast<int>(slices.size()), 0};
        const testing::Planned planned(job, share.setup, topology);
        slices.push_back(
            ZeroState::add_slices(planned.place(share.setup), job.precision.compute, arena));
    });
    std::vector<RankOutcome> outcomes(static_cast<size_t>(job.world_size()));
    testing::run_world(world, [&](testing::InProcessRank& self, int rank) {
        ShareSetup own(wide, rank % ranks);
        testing::InProcessRank beside = groups[rank / ranks]->enter(rank % ranks);
        const auto made = make_tensor_group(*beside.collectives, group_slices);
        TensorGroup& group = *made;
        const Topology& topology = self.collectives->topology();
        const testing::Planned planned(job, own.setup, topology);
        ZeroState state(own.setup.model(), planned.place(own.setup), slices[topology.node_rank],
                        *self.arena, *self.group, *self.collectives,
                        {job.optimizer, job.clipping, job.precision.compute,
                         job.precision.skip_nonfinite_steps});
        const TensorGroupScope scope(&group);
        testing::TrainPlace place{&topology, {}, {}, ranks};
        RankOutcome& outcome = outcomes[rank];
        outcome = testing::train_with(job, own.setup, planned.plan, state, *self.collectives, {},
                                      nullptr, {}, &place);
        testing::bring_into_model(state, own.setup.model());
        testing::collect_tensors(own.setup, state, outcome);
        self.collectives->barrier();
    });
    return outcomes;
}

// Returns the largest difference of a weight that is put together from shares.
double weight_difference(const TensorJob& split, const RankOutcome& one,
                         const std::vector<RankOutcome>& shares) {
    const ShareSetup setup(split, 0);
    double largest = 0;
    for (const TensorParameter& parameter : setup.tensor.plan.parameters) {
        std::vector<at::Tensor> parts;
        for (const RankOutcome& share : shares)
            parts.push_back(share.parameters.at(parameter.name));
        const bool whole = parameter.rule == TensorRule::kReplicated;
        INFO(parameter.name);
        if (whole)  // the same bits on all ranks
            for (const at::Tensor& part : parts) CHECK(part.equal(parts[0]));
        const at::Tensor together = whole ? parts[0] : whole_of(parts, parameter.shard);
        const at::Tensor& expected = one.parameters.at(parameter.name);
        REQUIRE(together.sizes() == expected.sizes());
        largest = std::max(largest, (together - expected).abs().max().item<double>());
    }
    return largest;
}

// A gradient's element is a sum of at most kSummands products on its way. In fp32 and in another
// order, each step has an error of kSummands 2^-24 of the largest element, which the norm bounds.
// The weights' error then changes later gradients by less than as much again. There are three
// steps.
constexpr double kSummands = 500;
const double kRounding = kSummands * std::ldexp(1.0, -24);

double weight_bound(const TrainingCase& job) {
    return 4 * static_cast<double>(job.steps) * job.optimizer.lr * job.clipping * kRounding;
}

void check_as_one(const TensorJob& split, bool in_world = false) {
    INFO(split.ranks << (split.sequence          ? " sequence"
                         : split.share_positions ? " position sharing"
                                                 : " tensor")
                     << " ranks on " << split.tensor_hosts.size() << " hosts, ZeRO "
                     << split.job.stage << ", " << split.job.world_size() << " copies on "
                     << split.job.node_sizes.size() << " hosts, recompute "
                     << split.job.recompute_groups);
    const RankOutcome one = testing::train_world(split.job).front();
    const std::vector<RankOutcome> shares =
        in_world ? train_positions_in_world(split) : TensorWorld(split).train();
    for (const RankOutcome& share : shares) {
        CHECK(share.norm == shares[0].norm);
        CHECK(std::abs(*share.norm - *one.norm) < kRounding * *one.norm);
    }
    const std::vector<double> losses = shares[0].losses(), expected = one.losses();
    REQUIRE(losses.size() == expected.size());
    for (size_t step = 0; step < losses.size(); ++step)
        CHECK(std::abs(losses[step] - expected[step]) < kRounding * expected[step]);
    CHECK(weight_difference(split, one, shares) < weight_bound(split.job));
}

}  // namespace

TEST_CASE("ranks that share every layer train as one rank does") {
    for (int stage = 0; stage <= 3; ++stage)
        for (const std::vector<int>& sizes : {std::vector<int>{1}, {2}, {1, 1}}) {
            TensorJob split{decoder_job()};
            split.job.node_sizes = sizes;
            split.job.stage = stage;
            check_as_one(split);
        }
}

TEST_CASE("tensor ranks are four, recompute, reduce each micro step, or lie on two hosts") {
    TensorJob split{decoder_job()};
    split.ranks = 4;
    split.tensor_hosts = {4};
    split.job.stage = 1;
    check_as_one(split);
    split.tensor_hosts = {2, 2};
    check_as_one(split);
    split = {decoder_job()};
    split.job.recompute_groups = 2;
    split.job.micro_step = true;
    split.job.stage = 3;
    split.job.node_sizes = {2};
    check_as_one(split);
}

TEST_CASE("ranks that share positions, between layers or everywhere, train as one rank does") {
    for (const bool sequence : {false, true})
        for (const int ranks : {2, 4})
            for (int stage = 0; stage <= 3; stage += 3) {
                TensorJob split{decoder_job()};
                split.ranks = ranks;
                split.tensor_hosts = {ranks};
                split.share_positions = !sequence;
                split.sequence = sequence;
                split.job.stage = stage;
                split.job.node_sizes = {2};
                check_as_one(split);
            }
}

TEST_CASE("blocks of keys go round ranks of one host, and of several") {
    // Four heads cannot be divided among eight ranks.
    for (const std::vector<int>& hosts : {std::vector<int>{8}, {3, 5}, {2, 2, 4}}) {
        TensorJob split{decoder_job()};
        split.ranks = 8;
        split.tensor_hosts = hosts;
        split.sequence = true;
        split.job.stage = 1;
        split.job.node_sizes = {1};
        check_as_one(split);
    }
}

TEST_CASE("ranks that share positions may be part of the world that ZeRO shards over") {
    for (int stage = 0; stage <= 3; ++stage)
        for (const std::vector<int>& sizes : {std::vector<int>{1}, {2}, {1, 1}}) {
            TensorJob split{decoder_job()};
            split.sequence = true;
            split.job.node_sizes = sizes;
            split.job.stage = stage;
            check_as_one(split, /*in_world=*/true);
        }
}

TEST_CASE("gradients of what every tensor rank computes for its share alone must be summed") {
    TensorJob split{decoder_job()};
    split.tell_zero = false;
    const RankOutcome one = testing::train_world(split.job).front();
    const std::vector<RankOutcome> shares = TensorWorld(split).train();
    CHECK(std::abs(*shares[0].norm - *one.norm) > 100 * kRounding * *one.norm);
    // The keys' weights differ between the ranks now.
    CHECK(!shares[0].parameters.at("wk").equal(shares[1].parameters.at("wk")));
}

}  // namespace dslaunch
