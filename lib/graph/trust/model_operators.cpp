#include "graph/trust/model_operators.h"

#include <ATen/core/class_type.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <fmt/core.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/runtime/print_handler.h>
#include <torch/library.h>

#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "graph/nodes/graph_nodes.h"
#include "graph/trust/operator_policy.h"

namespace dslaunch::graph {

namespace {

// Returns the source line that NODE comes from, such as " (model.py:41)"; empty if it is not known.
std::string line_of(const Node& node) {
    torch::jit::SourceRange range = node.sourceRange();
    if (const auto origin = range.findSourceRangeThatGenerated()) range = *origin;
    const auto place = range.file_line_col();
    if (!place) return "";
    const auto& [file, line, column] = *place;
    return fmt::format(" ({}:{})", printable(file.substr(file.rfind('/') + 1)), line);
}

// Returns the C++ class whose object NODE makes or whose method NODE calls; empty if there is none.
std::string class_in_cpp(const Node& node) {
    c10::TypePtr type;
    if (node.kind() == prim::CreateObject) type = node.output()->type();
    if (node.kind() == prim::CallMethod) type = node.input(0)->type();
    const auto named = type == nullptr ? nullptr : type->cast<c10::ClassType>();
    if (named == nullptr || !named->name()) return "";
    const std::string& name = named->name()->qualifiedName();
    return is_class_in_cpp(name) ? name : "";
}

[[noreturn]] void refuse(const Node& node, const std::string& name, const std::string& function,
                         const std::string& why) {
    const std::string scope = node.scopeName();
    fail(ExitCode::kInput,
         "the model uses {} in {}{}, and this operator could reach files, memory or other "
         "processes: {}. If you trust the author of the model, pass --trust-model",
         printable(name), printable(scope.empty() ? function : scope), line_of(node), why);
}

void check_node(const Node& node, const std::string& function) {
    const std::string kind = node.kind().toQualString();
    if (node.kind().is_prim()) {
        if (const std::string why = why_node_refused(kind); !why.empty())
            refuse(node, kind, function, why);
        if (const std::string name = class_in_cpp(node); !name.empty())
            if (const std::string why = why_class_refused(name); !why.empty())
                refuse(node, name, function, why);
        return;
    }
    const c10::FunctionSchema* schema = node.maybeSchema();
    const std::string why =
        schema == nullptr ? "LibTorch has no such operator" : why_refused(*schema);
    if (!why.empty()) refuse(node, kind, function, why);
}

// Calls USE with each node of GRAPH and its blocks, and with the nodes of the graphs that these
// nodes contain.
template <typename Use>
void for_all_nodes(const Graph& graph, const Use& use) {
    for_each_node(*graph.block(), [&](const Node& node) {
        use(node);
        for (const Symbol name : node.attributeNames()) {
            if (node.kindOf(name) == torch::jit::AttributeKind::g)
                for_all_nodes(*node.g(name), use);
            if (node.kindOf(name) == torch::jit::AttributeKind::gs)
                for (const auto& held : node.gs(name)) for_all_nodes(*held, use);
        }
    });
}

const Function* called(const Node& node) {
    if (node.kind() == prim::CallFunction) {
        const auto type = node.input(0)->type()->cast<c10::FunctionType>();
        return type == nullptr ? nullptr : type->function();
    }
    if (node.kind() != prim::CallMethod) return nullptr;
    const auto type = node.input(0)->type()->cast<c10::ClassType>();
    return type == nullptr ? nullptr : type->findMethod(node.s(attr::name));
}

// A dispatch key that LibTorch reserves for tests. It comes before all keys of devices and of
// autograd.
constexpr c10::DispatchKey kGuarded = c10::DispatchKey::TESTING_ONLY_GenericMode;

void run_if_let_in(const c10::OperatorHandle& operation, torch::jit::Stack* stack) {
    const std::string why = why_refused(operation.schema());
    if (!why.empty()) fail(ExitCode::kInput, "{}: {}", operation.schema().name(), why);
    const c10::impl::ExcludeDispatchKeyGuard inside(kGuarded);
    operation.callBoxed(stack);
}

c10::DispatchKey guarded_key() {
    static const auto library = [] {
        torch::Library all(torch::Library::IMPL, "_", kGuarded, __FILE__, __LINE__);
        all.fallback(torch::CppFunction::makeFromBoxedFunction<&run_if_let_in>());
        return all;
    }();
    return kGuarded;
}

// Counts the nodes of a function after all functions that it calls have been inlined.
class CallCount {
  public:
    int64_t nodes_of(Function& function, int64_t depth = 0) {
        if (depth > kCallDepthMax)
            fail(ExitCode::kInput, "the model's calls are nested more than {} deep, in {}",
                 kCallDepthMax, printable(function.qualname().qualifiedName()));
        const auto* body = torch::jit::tryToGraphFunction(function);
        if (body == nullptr) return 1;
        const auto [found, is_new] = counts_.try_emplace(&function, kOpen);
        if (!is_new) {
            if (found->second == kOpen)
                fail(ExitCode::kInput, "the model's {} calls itself",
                     printable(function.qualname().qualifiedName()));
            return found->second;
        }
        int64_t all = 0;
        for_all_nodes(*body->graph(), [&](const Node& node) {
            const Function* const callee = called(node);
            all += callee == nullptr ? 1 : nodes_of(const_cast<Function&>(*callee), depth + 1);
            if (all > kModelNodesMax)
                fail(
                    ExitCode::kInput,
                    "the model's code has more than {} operators once its calls are inlined, in {}",
                    kModelNodesMax, printable(function.qualname().qualifiedName()));
        });
        counts_[&function] = all;
        return all;
    }

  private:
    static constexpr int64_t kOpen = -1;
    std::map<const Function*, int64_t> counts_;
};

}  // namespace

void ModelOperators::check(const CompilationUnit& unit) {
    for (Function* function : unit.get_functions()) {
        const auto* body = torch::jit::tryToGraphFunction(*function);
        if (body == nullptr || !checked_.insert(function).second) continue;
        const std::string name = function->qualname().qualifiedName();
        for_all_nodes(*body->graph(), [&](const Node& node) { check_node(node, name); });
    }
}

FoldingGuard::FoldingGuard() : guard_(guarded_key()) {}

void print_to_log() {
    torch::jit::setPrintHandler([](const std::string& text) {
        for (const std::string& line : split(text, '\n'))
            if (!line.empty()) log_info("model", "{}", printable(line));
    });
}

void check_calls(const Module& module) {
    CallCount count;
    for (const char* name : {"forward", "logits"})
        if (const auto method = module.find_method(name))
            static_cast<void>(count.nodes_of(method->function()));
}

}  // namespace dslaunch::graph
