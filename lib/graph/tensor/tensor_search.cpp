#include "graph/tensor/tensor_search.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/check.h"
#include "base/error.h"
#include "graph/nodes/graph_nodes.h"

namespace dslaunch::graph {

namespace {

using Kind = TensorPlacement::Kind;

// A layer or table that could be split, with the node that reads the parameter.
struct Candidate {
    Node* node = nullptr;
    int parameter = -1;
    TensorPlacement placement;
    bool is_embedding = false;
};

struct Failure {
    Candidate candidate;
    TensorObstacle obstacle;
    bool is_attention = false;
};

class Search {
  public:
    Search(PlacementFlow& flow, const Model& model,
           const std::vector<std::optional<plan::TensorRule>>& given, bool is_strict)
        : flow_(flow), graph_(flow.graph()), model_(model), given_(given), is_strict_(is_strict) {}

    TensorFindings run() {
        for (size_t p = 0; p < given_.size(); ++p)
            if (given_[p] == plan::TensorRule::kReplicated)
                lock(static_cast<int>(p), "set by its rule");
        for (Node* node : graph_.nodes()) {
            const auto candidate = candidate_at(*node);
            if (candidate) look_at(*candidate);
        }
        settle_failures();
        check_given();
        if (std::none_of(found_.decisions.parameters.begin(), found_.decisions.parameters.end(),
                         [](const auto& entry) { return entry.second.is_shard(); }))
            refuse_all();
        explain();
        require_layers();
        return std::move(found_);
    }

  private:
    [[nodiscard]] const ModelParameter& parameter(int index) const {
        return model_.parameters()[index];
    }
    [[nodiscard]] std::string name_and_sizes(int index) const {
        return fmt::format("{} [{}]", parameter(index).name,
                           fmt::join(parameter(index).tensor.sizes(), ", "));
    }
    [[nodiscard]] std::optional<plan::TensorRule> given(int index) const { return given_[index]; }
    void lock(int index, std::string why) {
        found_.decisions.locked.insert(index);
        found_.why[index] = std::move(why);
    }

    [[nodiscard]] std::optional<Candidate> candidate_at(Node& node) const {
        Candidate candidate;
        candidate.node = &node;
        candidate.placement.kind = Kind::kShard;
        if (node.kind() == aten::embedding) {
            const auto origin = graph_.origin_of(node.input(0));
            if (!origin) return std::nullopt;
            candidate.is_embedding = true;
            candidate.parameter = origin->parameter;
            const auto rule = given(origin->parameter);
            if (rule == plan::TensorRule::kReplicated) return std::nullopt;
            if (rule && *rule != plan::TensorRule::kVocabulary)
                fail(ExitCode::kConfig,
                     "tensor rule `{}` of {}: this parameter is the weight of an embedding ({}), "
                     "which supports only the rules `vocabulary` and `replicated`",
                     plan::tensor_rule_name(*rule), name_and_sizes(origin->parameter),
                     describe_node(node));
            if (!rule && !FlowGraph::is_argument(node.input(1))) return std::nullopt;
            candidate.placement.shard = {0, {graph_.sizes(node.input(0))[0]}};
        } else if (const auto form = graph_.linear_form(node)) {
            const Value* weight = node.input(form->weight);
            const auto origin = graph_.origin_of(weight);
            candidate.parameter = origin->parameter;
            const bool row = given(origin->parameter) == plan::TensorRule::kRow;
            const auto dim = static_cast<size_t>(row ? form->weight_in : form->weight_out);
            candidate.placement.shard = {origin->dims[dim], {graph_.sizes(weight)[dim]}};
        } else {
            return std::nullopt;
        }
        candidate.placement.parameter = candidate.parameter;
        return candidate;
    }

    void look_at(const Candidate& candidate) {
        const int index = candidate.parameter;
        if (found_.decisions.locked.count(index) > 0 ||
            found_.decisions.parameters.count(index) > 0)
            return;
        const auto rule = given(index);
        TensorDecisions trial = found_.decisions;
        trial.parameters[index] = candidate.placement;
        if (rule == plan::TensorRule::kColumn) trial.gathered.insert(index);
        std::set<int> region = {index};
        std::optional<TensorObstacle> obstacle = close_region(trial, region);
        if (!obstacle) obstacle = uneven_layer(trial, region, candidate);
        if (!obstacle) {
            const bool classes = reaches(*candidate.node, aten::cross_entropy_loss);
            if (classes && !candidate.is_embedding && !rule && few_classes(candidate)) {
                lock(index, "the loss has fewer classes than the layer has inputs");
                return;
            }
            found_.decisions = std::move(trial);
            return;
        }
        if (rule) refuse(candidate, *obstacle);
        failures_.push_back({candidate, *obstacle, is_attention(*candidate.node)});
    }

    [[nodiscard]] bool few_classes(const Candidate& candidate) const {
        const auto sizes = parameter(candidate.parameter).tensor.sizes();
        const auto dim = static_cast<size_t>(candidate.placement.shard.dim);
        return sizes[dim] < sizes[1 - dim];
    }

    // Places the graph with the decisions of TRIAL. If the placement needs a split of further
    // parameters, adds them to TRIAL and REGION, and places the graph again. Returns the obstacle
    // that remains, if there is one.
    std::optional<TensorObstacle> close_region(TensorDecisions& trial, std::set<int>& region) {
        constexpr int kRoundsMax = 64;  // each round settles a parameter or refines its blocks
        std::map<int, TensorObstacle> indivisible;
        const std::set<int> start = region;
        for (int round = 0; round < kRoundsMax; ++round) {
            size_t first = graph_.nodes().size(), last = 0;
            for (const int index : region) {
                const auto [begin, end] = graph_.uses_of(index);
                first = std::min(first, begin);
                last = std::max(last, end);
            }
            const auto obstacle = flow_.follow(trial, clean_before(first), last);
            if (!obstacle) {
                note_clean(clean_before(first));
                return std::nullopt;
            }
            if (obstacle->is_indivisible) indivisible.emplace(obstacle->parameter, *obstacle);
            if (!obstacle->demands.empty()) {
                bool news = false;
                for (const auto& [index, placement] : obstacle->demands) {
                    TensorPlacement& now = trial.parameters[index];
                    news = news || !now.is_placed_like(placement);
                    now = placement;
                    region.insert(index);
                }
                if (news) continue;
                return obstacle;
            }
            // If keys and values cannot be split, every rank computes them as a whole.
            int at = obstacle->parameter;
            if (indivisible.count(at) == 0) at = *start.begin();
            const auto found = indivisible.find(at);
            if (found == indivisible.end()) return obstacle;
            if (start.count(at) > 0 || trial.parameters[at].kind == Kind::kCopied)
                return found->second;
            // Parameters that were split because of this parameter, such as its bias, become
            // undecided together with it.
            for (auto it = trial.parameters.begin(); it != trial.parameters.end();) {
                const bool follows = region.count(it->first) > 0 && it->second.parameter == at;
                it = follows ? trial.parameters.erase(it) : std::next(it);
            }
            std::erase_if(region, [&](int index) { return trial.parameters.count(index) == 0; });
            region.insert(at);
            trial.parameters[at] = {Kind::kCopied, {}, at};
        }
        TensorObstacle endless;
        endless.node = graph_.nodes().front();
        endless.reason = "the program found no consistent way to split this parameter";
        return endless;
    }

    // Returns an obstacle if a layer in REGION has shares of different sizes. Only a layer over the
    // vocabulary may have such shares: an embedding, or the last layer before the loss.
    std::optional<TensorObstacle> uneven_layer(const TensorDecisions& trial,
                                               const std::set<int>& region,
                                               const Candidate& candidate) {
        const bool vocabulary =
            candidate.is_embedding || reaches(*candidate.node, aten::cross_entropy_loss);
        for (const int index : region) {
            const TensorPlacement& placement = trial.parameters.at(index);
            if (vocabulary || !placement.is_shard() ||
                plan::divides_evenly(placement.shard, flow_.size()))
                continue;
            TensorObstacle obstacle;
            obstacle.node = candidate.node;
            obstacle.parameter = index;
            obstacle.is_indivisible = true;
            obstacle.reason =
                fmt::format("{} features of {} cannot be divided evenly among {} ranks",
                            placement.shard.blocks.front(), name_and_sizes(index), flow_.size());
            return obstacle;
        }
        return std::nullopt;
    }

    // Returns true if an output of NODE reaches an operator of KIND before another layer.
    [[nodiscard]] bool reaches(const Node& node, Symbol kind) const {
        return !visit_once({&node}, [&](const Node& next, std::vector<const Node*>& open) {
            for (const Value* output : next.outputs()) {
                if (!graph_.has_sizes(output)) continue;  // not a tensor: sizes reach every node
                for (const auto& use : output->uses()) {
                    if (use.user->kind() == kind) return false;
                    if (!graph_.linear_form(*use.user)) open.push_back(use.user);
                }
            }
            return true;
        });
    }
    [[nodiscard]] bool is_attention(const Node& node) const {
        return reaches(node, aten::scaled_dot_product_attention) || reaches(node, aten::softmax);
    }

    // Returns the last node at or before FIRST where nothing is split.
    [[nodiscard]] size_t clean_before(size_t first) const {
        return *std::prev(clean_.upper_bound(first));
    }
    void note_clean(size_t begin) {
        clean_.erase(clean_.upper_bound(begin), clean_.upper_bound(flow_.end()));
        clean_.insert(flow_.clean().begin(), flow_.clean().end());
    }

    [[noreturn]] void refuse(const Candidate& candidate, const TensorObstacle& obstacle) const {
        const int index = candidate.parameter;
        const auto rule = given(index);
        fail(ExitCode::kInput,
             "tensor parallelism of {} ranks: {} cannot be split{}: {}: {}. Use another number of "
             "ranks{}",
             flow_.size(), name_and_sizes(index),
             rule ? fmt::format(" as its rule `{}` says", plan::tensor_rule_name(*rule)) : "",
             obstacle.node == nullptr ? "" : describe_node(*obstacle.node), obstacle.reason,
             rule ? ""
                  : fmt::format(". Or keep the parameter whole on every rank with the rule `{}`: "
                                "`replicated`",
                                parameter(index).name));
    }

    void settle_failures() {
        for (const Failure& failure : failures_) {
            const int index = failure.candidate.parameter;
            if (found_.decisions.parameters.count(index) > 0) continue;
            if (is_strict_ && is_weighty(failure)) refuse(failure.candidate, failure.obstacle);
            lock(index, fmt::format("{}: {}", describe_node(*failure.obstacle.node),
                                    failure.obstacle.reason));
            found_.unproven.insert(index);
        }
    }

    // Throws if only the embeddings and the last layer before the loss can be split. With such a
    // split, every rank would still compute all other layers.
    void require_layers() const {
        for (const auto& [index, rule] : found_.rules)
            if (rule == plan::TensorRule::kColumn || rule == plan::TensorRule::kRow) return;
        for (const Failure& failure : failures_)
            if (is_weighty(failure)) refuse(failure.candidate, failure.obstacle);
    }

    [[nodiscard]] static bool is_weighty(const Failure& failure) {
        return failure.is_attention || failure.obstacle.is_indivisible;
    }

    // Checks that every given rule was carried out.
    void check_given() const {
        for (size_t p = 0; p < given_.size(); ++p) {
            const int index = static_cast<int>(p);
            if (!given_[p] || *given_[p] == plan::TensorRule::kReplicated) continue;
            const auto found = found_.decisions.parameters.find(index);
            if (found != found_.decisions.parameters.end() && found->second.is_shard()) continue;
            fail(ExitCode::kConfig,
                 "tensor rule `{}` of {}: no linear layer or embedding of the graph uses this "
                 "parameter in a way that the rule can split",
                 plan::tensor_rule_name(*given_[p]), name_and_sizes(index));
        }
    }

    void note(int index, plan::TensorRule rule, const char* why) {
        if (found_.decisions.parameters.count(index) == 0) return;
        found_.rules.emplace(index, rule);
        found_.why.emplace(index, why);
    }

    // Records the rules that were found, with their reasons.
    void explain() {
        for (Node* node : graph_.nodes()) {
            if (node->kind() == aten::embedding) {
                if (const auto origin = graph_.origin_of(node->input(0)))
                    note(origin->parameter, plan::TensorRule::kVocabulary,
                         "its indices are an argument of forward");
            } else if (const auto form = graph_.linear_form(*node)) {
                explain_layer(*node, *form);
            }
        }
        for (const auto& [index, placement] : found_.decisions.parameters)
            if (placement.is_shard())
                note(index, plan::TensorRule::kColumn,
                     "combined element by element with a split tensor");
    }

    void explain_layer(const Node& node, const LinearForm& form) {
        const auto weight = *graph_.origin_of(node.input(form.weight));
        const auto found = found_.decisions.parameters.find(weight.parameter);
        if (found == found_.decisions.parameters.end()) return;
        const auto summed = weight.dims[form.weight_in];
        if (found->second.kind == Kind::kCopied) {
            note(weight.parameter, plan::TensorRule::kReplicated,
                 "its heads cannot be divided evenly, so every rank computes all heads");
        } else if (found->second.shard.dim == summed) {
            note(weight.parameter, plan::TensorRule::kRow, "sums over the split dimension");
        } else if (reaches(node, aten::cross_entropy_loss)) {
            note(weight.parameter, plan::TensorRule::kVocabulary,
                 "each rank computes some classes of the loss");
        } else {
            note(weight.parameter, plan::TensorRule::kColumn,
                 is_attention(node) ? "each rank computes some attention heads"
                                    : "each rank computes some outputs; a later layer sums over "
                                      "these outputs, or the ranks gather them");
        }
        if (!form.bias) return;
        if (const auto bias = graph_.origin_of(node.input(*form.bias)))
            note(bias->parameter, found_.rules.at(weight.parameter), "as its weight");
    }

    [[noreturn]] void refuse_all() const {
        std::string reasons;
        for (const auto& [index, why] : found_.why)
            reasons += fmt::format("\n  {}: {}", name_and_sizes(index), why);
        fail(ExitCode::kInput,
             "tensor parallelism of {} ranks: no part of this model can be split{}", flow_.size(),
             reasons.empty() ? ": it has no linear layers or embeddings at the top of its graph"
                             : reasons);
    }

    PlacementFlow& flow_;
    const FlowGraph& graph_;
    const Model& model_;
    const std::vector<std::optional<plan::TensorRule>>& given_;
    bool is_strict_;
    TensorFindings found_;
    std::vector<Failure> failures_;
    std::set<size_t> clean_ = {0};  // nodes before which nothing is split
};

}  // namespace

TensorFindings find_tensor_rules(PlacementFlow& flow, const Model& model,
                                 const std::vector<std::optional<plan::TensorRule>>& given,
                                 bool is_strict) {
    return Search(flow, model, given, is_strict).run();
}

}  // namespace dslaunch::graph
