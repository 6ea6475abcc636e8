#include "graph/draws/dropout_seeds.h"

#include <ATen/Context.h>
#include <ATen/core/Generator.h>
#include <torch/csrc/jit/runtime/custom_operator.h>

#include <mutex>

#include "base/splitmix64.h"
#include "graph/nodes/graph_nodes.h"

namespace dslaunch::graph {

using torch::jit::Stack;

namespace {

struct ThreadDraws {
    DrawKey key;
    int64_t ordinal_first = 0;
    c10::Device device = c10::kCPU;
    std::unique_lock<std::mutex> lock;
};

ThreadDraws& this_thread() {
    thread_local ThreadDraws draws;
    return draws;
}

std::mutex& generator_mutex() {
    static std::mutex mutex;
    return mutex;
}

void begin_draw(Stack& stack) {
    const int64_t trip = torch::jit::pop(stack).toInt();
    const int64_t ordinal = torch::jit::pop(stack).toInt();
    ThreadDraws& mine = this_thread();
    mine.lock = std::unique_lock(generator_mutex());
    at::Generator generator = at::globalContext().defaultGenerator(mine.device);
    const std::lock_guard inner(generator.mutex());
    generator.set_current_seed(draw_seed(mine.key, mine.ordinal_first + ordinal, trip));
}

void end_draw(Stack& /*stack*/) {
    this_thread().lock = {};
}

// Registers this file's operators with TorchScript when the first segment needs them.
void register_operators() {
    static const torch::jit::RegisterOperators operators({
        torch::jit::Operator("dslaunch::begin_draw(int ordinal, int trip) -> ()", begin_draw,
                             c10::AliasAnalysisKind::CONSERVATIVE),
        torch::jit::Operator("dslaunch::end_draw() -> ()", end_draw,
                             c10::AliasAnalysisKind::CONSERVATIVE),
    });
}

}  // namespace

DrawScope::DrawScope(const DrawKey& key, int64_t ordinal_first, c10::Device device) {
    ThreadDraws& mine = this_thread();
    mine.key = key;
    mine.ordinal_first = ordinal_first;
    mine.device = device;
}

DrawScope::~DrawScope() {
    this_thread().lock = {};
}

const DrawKey& this_draw_key() {
    return this_thread().key;
}

uint64_t draw_seed(const DrawKey& key, int64_t ordinal, int64_t trip) {
    uint64_t hash = splitmix64(key.seed);
    for (const int64_t part : {key.step, key.micro_batch, ordinal, trip})
        hash = splitmix64(hash ^ static_cast<uint64_t>(part));
    return hash;
}

bool draws(const Node& node) {
    // LibTorch counts attention as random even without dropout.
    if (constant_number(node, "dropout_p") == 0) return false;
    // Counts a call that was not inlined as random, because it may contain random nodes. Also
    // counts the dropout and attention that tensor parallelism puts in place of LibTorch's, so that
    // all random nodes have the same ordinals with and without tensor parallelism.
    return node.isNondeterministic() ||
           is_one_of(node, {"prim::CallMethod", "dslaunch::tensor_dropout",
                            "dslaunch::tensor_attention"});
}

void insert_draw(Node* node, int64_t ordinal, Value* trip) {
    register_operators();
    Graph& graph = *node->owningGraph();
    WithInsertPoint before(node);
    Value* ordinal_value = graph.insertConstant(ordinal);
    if (trip == nullptr) trip = graph.insertConstant(static_cast<int64_t>(0));
    Node* begin =
        graph.create(Symbol::fromQualString("dslaunch::begin_draw"), {ordinal_value, trip}, 0);
    begin->insertBefore(node);
    Node* end = graph.create(Symbol::fromQualString("dslaunch::end_draw"), {}, 0);
    end->insertAfter(node);
}

}  // namespace dslaunch::graph
