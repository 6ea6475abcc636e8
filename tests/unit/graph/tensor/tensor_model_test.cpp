// Models made tensor parallel, with ranks that are threads, compared with the whole models: the
// loss and every gradient.
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/interpreter.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "graph/segment/compute_context.h"
#include "graph/segment/cut.h"
#include "graph/sharing/share_of.h"
#include "support/catch.h"
#include "support/whole_run.h"
#include "unit/graph/tensor/tensor_case.h"

namespace dslaunch {

using namespace graph;
using namespace plan;
namespace {

using test::count_of;
using test::kLayersOf;
using test::named;
using test::ranks;
using test::TensorCase;
using Kind = TensorCollectiveKind;

// Removes collective number SITE from TENSOR's graph: its input replaces its output.
void leave_out(TensorModel& tensor, int64_t site) {
    for (torch::jit::Node* node : tensor.lowered.graph->nodes()) {
        const std::string kind = node->kind().toQualString();
        if (kind != "dslaunch::tensor_copy" && kind != "dslaunch::tensor_reduce") continue;
        const auto number = torch::jit::toIValue(node->input(1));
        if (!number || number->toInt() != site) continue;
        node->output()->replaceAllUsesWith(node->input(0));
        for (auto& [original, twin] : tensor.twins.values)
            if (twin == node->output()) twin = node->input(0);
        return;
    }
    FAIL("no collective " << site);
}

}  // namespace

TEST_CASE("fixture models split among ranks compute what they compute whole") {
    for (const auto& [name, layers] : kLayersOf) {
        const TensorCase made = TensorCase::fixture(name);
        const TensorReference whole = made.whole();
        for (const int size : {1, 2, 4}) {
            INFO(name << " on " << size);
            const TensorModel tensor = made.split(ranks(size));
            const TensorCheck check = made.check(tensor, whole);
            CHECK(check.difference < check.bound);
            CHECK(std::abs(check.loss - whole.loss.item<double>()) < 1e-12);
            // Two layers that sum and two that copy in each block, the table, and the loss.
            CHECK(count_of(tensor.plan, Kind::kReduce) == 2 * layers + 1);
            CHECK(count_of(tensor.plan, Kind::kCopy) == 2 * layers + 1);
            CHECK(count_of(tensor.plan, Kind::kLoss) == 1);
        }
    }
}

TEST_CASE("a rank holds its share of every layer's weights, and what is whole is told so") {
    const TensorPlan gpt = TensorCase::fixture("gpt").split(ranks(2)).plan;
    CHECK(named(gpt, "blocks.0.qkv.weight").rule == TensorRule::kColumn);
    CHECK(named(gpt, "blocks.0.qkv.weight").shard == TensorShard{0, {32, 32, 32}});
    CHECK(named(gpt, "blocks.0.qkv.bias").shard == TensorShard{0, {32, 32, 32}});
    CHECK(named(gpt, "blocks.2.proj.weight").rule == TensorRule::kRow);
    CHECK(named(gpt, "blocks.2.proj.weight").shard == TensorShard{1, {32}});
    CHECK(named(gpt, "blocks.2.proj.bias").rule == TensorRule::kReplicated);
    CHECK(named(gpt, "blocks.2.proj.bias").gradient == TensorGradient::kComplete);
    CHECK(named(gpt, "wte.weight").rule == TensorRule::kVocabulary);
    CHECK(named(gpt, "wpe.weight").rule == TensorRule::kReplicated);
    // Conv1D stores its weight as [in, out].
    const TensorPlan gpt2 = TensorCase::fixture("gpt2").split(ranks(2)).plan;
    const std::string block = "model.transformer.h.0.";
    CHECK(named(gpt2, block + "attn.c_attn.weight").shard == TensorShard{1, {32, 32, 32}});
    CHECK(named(gpt2, block + "mlp.c_proj.weight").shard == TensorShard{0, {128}});
    // Two heads of keys and values for four ranks: all of them on each.
    const TensorPlan llama = TensorCase::fixture("llama").split(ranks(4)).plan;
    const std::string layer = "model.model.layers.1.self_attn.";
    CHECK(named(llama, layer + "q_proj.weight").shard == TensorShard{0, {32}});
    CHECK(named(llama, layer + "k_proj.weight").rule == TensorRule::kReplicated);
    CHECK(named(llama, layer + "k_proj.weight").gradient == TensorGradient::kSummand);
    CHECK(named(llama, layer + "v_proj.weight").gradient == TensorGradient::kSummand);
}

TEST_CASE("bytes of a micro batch are those of the activations that cross") {
    const TensorCase made = TensorCase::fixture("gpt");
    const TensorPlan plan = made.split(ranks(2)).plan;
    const int64_t tokens = made.inputs.arguments[0].toTensor().numel();
    const int64_t activation = tokens * 32 * 8;  // width 32 in fp64
    CHECK(plan.backward_bytes().value == 7 * activation);
    CHECK(plan.forward_bytes().value == 7 * activation + tokens * 3 * 4);
}

TEST_CASE("gradients of shares, put together, are those that stock PyTorch computes in fp32") {
    for (const char* name : {"gpt", "qwen2", "gpt2"}) {
        test::Fixture fixture = test::Fixture::load(name);
        const SegmentedModel one = fixture.cut(1);
        const auto batch = fixture.batch(one);
        const test::RunResult stock = test::run_module(one, batch, fixture.options.loss);
        GraphInputs inputs;
        inputs.arguments = one.first_inputs(batch);
        for (const ModelParameter& parameter : fixture.model.parameters())
            inputs.parameters.push_back(parameter.tensor.detach());
        for (const ModelBuffer& buffer : fixture.model.buffers())
            inputs.buffers.push_back(buffer.tensor);
        const int size = 2;
        const TensorModel tensor =
            make_tensor_parallel(fixture.model, one.lowered(), inputs, ranks(size));
        std::vector<std::vector<at::Tensor>> gradients(size);
        std::vector<double> losses(size);
        run_tensor_ranks(size, [&](TensorGroup& group) {
            GraphInputs mine = inputs;
            mine.parameters =
                tensor_shares(inputs.parameters, tensor.plan, {group.rank(), group.size()});
            for (at::Tensor& leaf : mine.parameters) leaf = leaf.detach().set_requires_grad(true);
            const auto outputs =
                WholeGraph(fixture.model, tensor.lowered, {}).run(mine, {true, &group});
            torch::autograd::backward({outputs[0].toTensor()}, {});
            const auto rank = static_cast<size_t>(group.rank());
            losses[rank] = outputs[0].toTensor().item<double>();
            for (const at::Tensor& leaf : mine.parameters) gradients[rank].push_back(leaf.grad());
        });
        CHECK(losses[0] == losses[1]);
        CHECK(std::abs(losses[0] - stock.loss) < 1e-5);
        // The bound is for about 1000 summands of each gradient: 1000 * 2^-24 of the largest.
        double largest = 0;
        for (const auto& [parameter, gradient] : stock.gradients)
            largest = std::max(largest, gradient.abs().max().item<double>());
        for (size_t p = 0; p < tensor.plan.parameters.size(); ++p) {
            const TensorParameter& parameter = tensor.plan.parameters[p];
            INFO(name << " " << parameter.name);
            const at::Tensor whole =
                parameter.rule == TensorRule::kReplicated
                    ? gradients[0][p]
                    : whole_of({gradients[0][p], gradients[1][p]}, parameter.shard);
            const at::Tensor expected = stock.gradients.at(parameter.name);
            REQUIRE(whole.sizes() == expected.sizes());
            CHECK((whole - expected).abs().max().item<double>() < 6e-5 * largest);
        }
    }
}

TEST_CASE("a graph without one of its collectives is refused with the node that differs") {
    const TensorCase made = TensorCase::fixture("gpt");
    const TensorReference whole = made.whole();
    const TensorPlan plan = made.split(ranks(2)).plan;
    for (size_t site = 0; site + 1 < plan.collectives.size(); ++site) {
        TensorModel broken = made.split(ranks(2));
        leave_out(broken, static_cast<int64_t>(site));
        const bool forward = plan.collectives[site].kind == Kind::kReduce;
        const std::string& where = plan.collectives[site].where;
        INFO(where);
        try {
            static_cast<void>(made.check(broken, whole));
            FAIL("nothing was thrown");
        } catch (const Error& error) {
            CHECK(error.code() == ExitCode::kDiverged);
            const std::string text = error.what();
            // A missing sum is noticed at its node, a missing copy in the gradient of its input.
            if (forward) CHECK_THAT(text, Catch::Contains("differs is computed by " + where));
            if (!forward)
                CHECK_THAT(text,
                           Catch::Contains("differs belongs to the result of aten::layer_norm"));
        }
    }
}

TEST_CASE("a bias that every rank adds is found, though it is zero in the model") {
    // A row layer's bias is added before the sum, so with two ranks it is added twice.
    const TensorCase made = TensorCase::fixture("gpt");
    TensorModel broken = made.split(ranks(2));
    bool moved = false;
    for (torch::jit::Node* node : broken.lowered.graph->nodes()) {
        if (moved || std::string(node->kind().toQualString()) != "dslaunch::tensor_reduce" ||
            node->input(0)->node()->kind() != c10::aten::linear)
            continue;
        torch::jit::Node* sum = node->output()->uses().at(0).user;
        REQUIRE(sum->kind() == c10::aten::add);
        node->input(0)->node()->replaceInput(2, sum->input(1));
        sum->output()->replaceAllUsesWith(node->output());
        moved = true;
    }
    REQUIRE(moved);
    CHECK_THROWS_WITH(made.check(broken, made.whole()), Catch::Contains("aten::linear in 0.proj"));
}

TEST_CASE("a split graph is cut into segments that give the same bits") {
    const TensorCase made = TensorCase::fixture("gpt-dropout");
    const TensorModel tensor = made.split(ranks(2));
    const CutMap map = find_cuts(tensor.lowered, made.model);
    std::vector<int64_t> ends = choose_cuts(map.places, 40000, 6);
    REQUIRE(ends.size() == 5);
    ends.push_back(static_cast<int64_t>(map.nodes.size()));
    run_tensor_ranks(2, [&](TensorGroup& group) {
        GraphInputs mine = made.inputs;
        mine.parameters = tensor_shares(mine.parameters, tensor.plan, {group.rank(), group.size()});
        const double whole = WholeGraph(made.model, tensor.lowered, {})
                                 .run(mine, {false, &group})[0]
                                 .toTensor()
                                 .item<double>();
        const ComputeContext context(false);
        const TensorGroupScope scope(&group);
        std::vector<c10::IValue> alive = mine.arguments;
        graph::SegmentNodes range;
        LiveRange live;
        for (size_t i = 0; i < tensor.lowered.first_parameter(); ++i)
            live.in.push_back(tensor.lowered.graph->inputs()[i]);
        for (const int64_t end : ends) {
            range.end = end;
            const auto outputs = tensor.lowered.graph->outputs();
            live.out = end == ends.back()
                           ? std::vector<torch::jit::Value*>(outputs.begin(), outputs.end())
                           : map.alive_at(end, tensor.lowered);
            const Segment segment = build_segment(made.model, tensor.lowered, map, range, live);
            for (const int p : segment.parameters) alive.emplace_back(mine.parameters[p]);
            for (const int b : segment.buffers) alive.emplace_back(mine.buffers[b]);
            const DrawScope draws(mine.key, segment.draw_ordinal_first, c10::kCPU);
            torch::jit::InterpreterState(torch::jit::Code(segment.graph, "part")).run(alive);
            range = {end, end, range.draw_ordinal_first + segment.draws};
            live.in = live.out;
        }
        if (alive[0].toTensor().item<double>() != whole)
            throw Error(ExitCode::kDiverged, "the segments give another loss");
    });
}

}  // namespace dslaunch
