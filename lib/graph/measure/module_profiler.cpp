#include "graph/measure/module_profiler.h"

#include <ATen/SequenceNumber.h>
#include <ATen/core/stack.h>
#include <ATen/record_function.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/csrc/jit/runtime/custom_operator.h>
#include <torch/csrc/jit/runtime/interpreter.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "base/clock.h"
#include "graph/lowered/lowered_graph.h"
#include "graph/measure/operator_flops.h"

namespace dslaunch::graph {

namespace {

constexpr const char* kMark = "dslaunch::begin_module";
constexpr int64_t kOutside = -1;  // no module's code runs
constexpr auto kInfoKind = c10::DebugInfoKind::PRODUCER_INFO;

}  // namespace

// The measurements so far; autograd's threads share them.
class ModuleProfiler::Record final : public c10::DebugInfoBase {
  public:
    explicit Record(c10::Device device) : device_(device) { place_of(""); }

    // Returns the profile of this thread's work; null if there is none.
    static Record* current() {
        return static_cast<Record*>(c10::ThreadLocalDebugInfo::get(kInfoKind));
    }

    // Returns the index of the module at PATH, which is added if it is new.
    int64_t place_of(const std::string& path) {
        const auto [found, fresh] = places_.try_emplace(path, std::ssize(costs_));
        if (fresh) costs_.push_back({path});
        return found->second;
    }

    // Called when the forward of module PLACE begins. PLACE is kOutside when code outside of all
    // modules begins.
    void enter(int64_t place) {
        const TimePoint time = now();
        const int64_t flops = flops_.take();
        if (place_ != kOutside) {
            plan::ModuleCost& cost = costs_[static_cast<size_t>(place_)];
            (recomputes_ ? cost.recompute : cost.forward) += time - since_;
            if (!recomputes_) cost.forward_flops += flops;
        }
        place_ = place;
        if (place != kOutside) nodes_.emplace_back(at::sequence_number::peek(), place);
        since_ = SystemClock().now();
    }
    void set_recomputes(bool recomputes) { recomputes_ = recomputes; }

    void begin_operator(const at::RecordFunction& call) {
        if (place_ != kOutside) flops_.enter(call);
    }
    void end_operator(const at::RecordFunction& call) {
        if (place_ != kOutside) flops_.leave(call);
    }
    void begin_backward() {
        if (backward_depth_++ == 0) backward_began_ = now();
    }
    void end_backward(int64_t node) {
        if (--backward_depth_ > 0) return;
        costs_[static_cast<size_t>(module_of(node))].backward += now() - backward_began_;
    }

    [[nodiscard]] std::vector<plan::ModuleCost> costs() const {
        std::vector<plan::ModuleCost> ran;
        for (const plan::ModuleCost& cost : costs_)
            if (cost.forward + cost.recompute + cost.backward > Duration{0}) ran.push_back(cost);
        return ran;
    }

  private:
    // Returns the time after the device has finished its work.
    [[nodiscard]] TimePoint now() const {
        if (!device_.is_cpu())
            c10::impl::VirtualGuardImpl(device_.type()).synchronizeDevice(device_.index());
        return SystemClock().now();
    }

    // Returns the module whose forward made autograd's node number NODE: the last module that began
    // before that node. The nodes that add to parameters' gradients have no number; their time
    // counts for the model as a whole.
    [[nodiscard]] int64_t module_of(int64_t node) const {
        const auto after = std::ranges::upper_bound(
            nodes_, node, {}, [](const auto& begun) { return static_cast<int64_t>(begun.first); });
        return node < 0 || after == nodes_.begin() ? 0 : std::prev(after)->second;
    }

    c10::Device device_;
    std::map<std::string, int64_t> places_;
    std::vector<plan::ModuleCost> costs_;
    OperatorFlops flops_;
    int64_t place_ = kOutside;
    TimePoint since_{};
    bool recomputes_ = false;
    std::vector<std::pair<uint64_t, int64_t>> nodes_;  // pairs: autograd's next node, begun module
    int backward_depth_ = 0;
    TimePoint backward_began_{};
};

// The hooks in LibTorch that fill a record.
class ModuleProfiler::Callbacks {
  public:
    explicit Callbacks(const std::shared_ptr<Record>& record) : guard_(kInfoKind, record) {
        at::RecordFunctionCallback forward(
            [](const at::RecordFunction& call) -> std::unique_ptr<at::ObserverContext> {
                if (Record* const now = Record::current()) now->begin_operator(call);
                return nullptr;
            },
            [](const at::RecordFunction& call, at::ObserverContext*) {
                if (Record* const now = Record::current()) now->end_operator(call);
            });
        at::RecordFunctionCallback backward(
            [](const at::RecordFunction&) -> std::unique_ptr<at::ObserverContext> {
                if (Record* const now = Record::current()) now->begin_backward();
                return nullptr;
            },
            [](const at::RecordFunction& call, at::ObserverContext*) {
                if (Record* const now = Record::current()) now->end_backward(call.seqNr());
            });
        forward_ = at::addThreadLocalCallback(
            forward.needsInputs(true).needsOutputs(true).scopes({at::RecordScope::FUNCTION}));
        backward_ =
            at::addThreadLocalCallback(backward.scopes({at::RecordScope::BACKWARD_FUNCTION}));
    }
    Callbacks(const Callbacks&) = delete;
    Callbacks& operator=(const Callbacks&) = delete;
    ~Callbacks() {
        at::removeCallback(forward_);
        at::removeCallback(backward_);
    }

  private:
    c10::DebugInfoGuard guard_;
    at::CallbackHandle forward_ = 0;
    at::CallbackHandle backward_ = 0;
};

namespace {

// Registers an operator that calls MARK. The profiler inserts this operator before the code of each
// module.
void register_mark(void (*mark)(torch::jit::Stack&)) {
    static const torch::jit::RegisterOperators operators({torch::jit::Operator(
        "dslaunch::begin_module(int place) -> ()", mark, c10::AliasAnalysisKind::CONSERVATIVE)});
}

// The full paths of the modules in a TorchScript graph. Nodes do not contain the names of module
// lists, because forward calls only the elements of a list. For example, "0.fc" means
// "blocks.0.fc".
class ModulePaths {
  public:
    explicit ModulePaths(const Model& model) : model_(model) {
        for (const ModelParameter& parameter : model.parameters()) add_owners(parameter.name, all_);
        for (const ModelBuffer& buffer : model.buffers()) add_owners(buffer.name, all_);
    }

    // Sets the segment in which nodes are looked up. If several modules fit a node's path, the node
    // belongs to the module whose parameters the segment reads.
    void enter(const Segment& segment) {
        here_.clear();
        known_.clear();
        for (const int parameter : segment.parameters)
            add_owners(model_.parameters()[parameter].name, here_);
    }

    // Returns the full path of a module. PATH is the module's path in a node, which may lack some
    // parts.
    const std::string& whole(const std::string& path) {
        const auto [found, fresh] = known_.try_emplace(path);
        if (fresh) {
            const std::string made = find(path);  // may add to known_
            known_[path] = made;
        }
        return known_.at(path);
    }

  private:
    static void add_owners(std::string name, std::set<std::string>& owners) {
        for (size_t dot = name.rfind('.'); dot != std::string::npos; dot = name.rfind('.')) {
            name.resize(dot);
            owners.insert(name);
        }
    }

    // Returns true if PATH is WHOLE without some of its parts. Both must end in the same part; for
    // example, "0.fc" is short for "blocks.0.fc".
    static bool is_short_for(std::string_view path, std::string_view whole) {
        const auto take_last = [](std::string_view& text) {
            const size_t dot = text.rfind('.');
            const std::string_view last =
                dot == std::string_view::npos ? text : text.substr(dot + 1);
            text = dot == std::string_view::npos ? "" : text.substr(0, dot);
            return last;
        };
        if (take_last(path) != take_last(whole)) return false;
        while (!path.empty()) {
            if (whole.empty()) return false;
            std::string_view rest = path;
            if (take_last(rest) == take_last(whole)) path = rest;
        }
        return true;
    }

    [[nodiscard]] std::string find(const std::string& path) {
        // torch.export gives this name to nodes that it adds outside of all modules.
        if (path.starts_with("_empty_nn_module_stack")) return "";
        if (path.empty() || all_.contains(path)) return path;
        for (const std::set<std::string>* modules : {&std::as_const(here_), &std::as_const(all_)}) {
            const auto found = std::ranges::find_if(
                *modules, [&](const std::string& whole) { return is_short_for(path, whole); });
            if (found != modules->end()) return *found;
        }
        // The module has no parameters; it may be an activation.
        const size_t dot = path.rfind('.');
        if (dot == std::string::npos) return path;
        return whole(path.substr(0, dot)) + path.substr(dot);
    }

    const Model& model_;
    std::set<std::string> all_;
    std::set<std::string> here_;                // modules whose parameters the segment reads
    std::map<std::string, std::string> known_;  // in this segment
};

// The part of the profiler that puts marks into the graph of a segment.
class Marker {
  public:
    Marker(Graph& graph, std::function<int64_t(const std::string&)> place_of)
        : graph_(graph), place_of_(std::move(place_of)) {}

    void run() {
        mark_block(*graph_.block());
        const torch::jit::WithInsertPoint at_end(graph_.block()->return_node());
        mark(kOutside);
    }

  private:
    static constexpr int64_t kUnknown = -2;

    void mark(int64_t place) {
        graph_.insertNode(graph_.create(c10::Symbol::fromQualString(kMark),
                                        {graph_.insertConstant(place)}, /*num_outputs=*/0));
    }

    void mark_block(Block& block) {
        int64_t current = kUnknown;
        for (auto it = block.nodes().begin(); it != block.nodes().end();) {
            Node* const node = *it++;
            if (node->kind() == prim::Constant) continue;
            if (const int64_t place = place_of_(module_path(*node)); place != current) {
                const torch::jit::WithInsertPoint before(node);
                mark(place);
                current = place;
            }
            for (Block* inner : node->blocks()) mark_block(*inner);
            if (!node->blocks().empty()) current = kUnknown;
        }
    }

    Graph& graph_;
    std::function<int64_t(const std::string&)> place_of_;
};

}  // namespace

ModuleProfiler::ModuleProfiler(SegmentedModel& model)
    : model_(model), record_(std::make_shared<Record>(model.lowered().device)) {
    register_mark([](torch::jit::Stack& stack) {
        const int64_t place = torch::jit::pop(stack).toInt();
        if (Record* const now = Record::current()) now->enter(place);
    });
    ModulePaths paths(model.model());
    std::vector<std::shared_ptr<Code>> marked;
    for (const Segment& segment : model.segments()) {
        const std::shared_ptr<Graph> graph = segment.graph->copy();
        paths.enter(segment);
        Marker(*graph, [&](const std::string& path) {
            return record_->place_of(paths.whole(path));
        }).run();
        marked.push_back(std::make_shared<Code>(graph, segment.name));
    }
    codes_ = model.exchange_codes(std::move(marked));
    callbacks_ = std::make_unique<Callbacks>(record_);
}

ModuleProfiler::~ModuleProfiler() {
    callbacks_.reset();
    static_cast<void>(model_.exchange_codes(std::move(codes_)));
}

std::vector<plan::ModuleCost> ModuleProfiler::costs() const {
    return record_->costs();
}

ModuleProfiler::RecomputeScope::RecomputeScope() {
    if (Record* const now = Record::current()) now->set_recomputes(true);
}

ModuleProfiler::RecomputeScope::~RecomputeScope() {
    if (Record* const now = Record::current()) now->set_recomputes(false);
}

}  // namespace dslaunch::graph
