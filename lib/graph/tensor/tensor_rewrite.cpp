#include "graph/tensor/tensor_rewrite.h"

#include <torch/csrc/jit/ir/constants.h>

#include <set>

#include "base/check.h"
#include "base/error.h"
#include "graph/sharing/share_of.h"
#include "graph/sharing/tensor_operators.h"
#include "graph/tensor/placement_flow.h"
#include "graph/tensor/tensor_search.h"

namespace dslaunch::graph {

namespace {

using EditKind = TensorEdit::Kind;

Symbol own(const char* name) {
    return Symbol::fromQualString(std::string("dslaunch::") + name);
}

bool is_list(const Value& value) {
    return value.type()->kind() == c10::TypeKind::ListType;
}

class Rewriter {
  public:
    Rewriter(const LoweredGraph& lowered, const PlacementFlow& flow) : flow_(flow) {
        made_.lowered = lowered;
        made_.lowered.graph = lowered.graph->copy();
        pair_twins(*lowered.graph->block(), *made_.lowered.graph->block(), made_.twins);
    }

    // Carries out the edits. MIXED: the parameters that some nodes read to compute a rank's share
    // of the work, and other nodes read to compute the whole work. A node that computes a share
    // then reads the parameter through tensor_copy, so that the parameter's gradient is complete.
    void run(const std::set<const Value*>& mixed) {
        for (const TensorEdit& edit : flow_.edits()) {
            const bool copy =
                edit.kind == EditKind::kCopy ||
                (edit.kind == EditKind::kSummand && mixed.count(edit.node->input(edit.input)) > 0);
            if (copy) {
                copy_input(edit);
            } else if (edit.kind == EditKind::kGatherSum) {
                gather_input(edit);
            } else if (edit.kind != EditKind::kSummand) {
                apply(edit);
            }
        }
        for (Node* node : replaced_) node->destroy();
        loosen_views();
    }

    [[nodiscard]] TensorModel take() { return std::move(made_); }

  private:
    [[nodiscard]] Graph& graph() { return *made_.lowered.graph; }

    // Turns views into reshapes, which may copy: a rank's share may have a different layout in
    // memory from the whole tensor.
    void loosen_views() {
        for (const auto& [original, node] : made_.twins.nodes) {
            if (original->kind() != aten::view) continue;
            if (flow_.placement_of(original->input(0)).is_whole()) continue;
            Node* const loose = node->replaceWithNewSymbol(aten::reshape);
            Value*& twin = made_.twins.values.at(original->output());
            if (twin == node->output()) twin = loose->output();
            node->destroy();
        }
    }

    int64_t add_site(plan::TensorCollectiveKind kind, const Node& where, Bytes forward,
                     Bytes backward) {
        made_.plan.collectives.push_back({kind, describe_node(where), forward, backward});
        return static_cast<int64_t>(made_.plan.collectives.size()) - 1;
    }

    // Passes the input of EDIT's node through tensor_copy. A value that several nodes read for
    // their shares is copied only once, after the node that makes it.
    void copy_input(const TensorEdit& edit) {
        Value* original = edit.node->input(edit.input);
        Node* node = made_.twins.nodes.at(edit.node);
        Value*& copy = copies_[original];
        if (copy == nullptr) {
            const int64_t site = add_site(plan::TensorCollectiveKind::kCopy, *edit.node, {},
                                          Bytes{flow_.graph().bytes(original)});
            Value* source = made_.twins.values.at(original);
            Node* maker = source->node();
            const bool is_input = maker == graph().param_node();
            const WithInsertPoint here(is_input ? *graph().nodes().begin() : maker->next());
            copy = insert_like(*node, own("tensor_copy"), {source, site});
        }
        node->replaceInput(edit.input, copy);
    }

    // Gathers the input of EDIT's node. Positions that several layers read are gathered only once,
    // after the node that makes them.
    void gather_input(const TensorEdit& edit) {
        Value* original = edit.node->input(edit.input);
        Node* node = made_.twins.nodes.at(edit.node);
        Value*& whole = gathered_[original];
        if (whole == nullptr) {
            const Bytes bytes{flow_.graph().bytes(original)};
            const int64_t site =
                add_site(plan::TensorCollectiveKind::kAllGather, *edit.node, bytes, bytes);
            Value* source = made_.twins.values.at(original);
            const WithInsertPoint here(source->node()->next());
            whole = insert_like(*node, own("tensor_all_gather"),
                                {source, edit.shard.dim, edit.shard.blocks, site});
        }
        node->replaceInput(edit.input, whole);
    }

    // Passes the input of EDIT's node through the collective OPERATION, which moves the bytes of
    // the whole tensor.
    void collect_input(const TensorEdit& edit, const char* operation,
                       plan::TensorCollectiveKind kind) {
        const Bytes bytes{flow_.graph().bytes(edit.node->input(edit.input))};
        const bool forward = kind != plan::TensorCollectiveKind::kScatter;
        const bool backward = kind != plan::TensorCollectiveKind::kGather;
        const int64_t site =
            add_site(kind, *edit.node, forward ? bytes : Bytes{}, backward ? bytes : Bytes{});
        replace(made_.twins.nodes.at(edit.node), edit.input, own(operation),
                {edit.shard.dim, edit.shard.blocks, site});
    }

    // Changes which dimension of an input of attention is split: dimension `edit.count` instead of
    // `edit.shard.dim`.
    void exchange_input(const TensorEdit& edit) {
        const Value* original = edit.node->input(edit.input);
        const Bytes forward{flow_.graph().bytes(original)};
        const Bytes backward = flow_.graph().needs_gradient(original) ? forward : Bytes{};
        const int64_t site =
            add_site(plan::TensorCollectiveKind::kExchange, *edit.node, forward, backward);
        replace(made_.twins.nodes.at(edit.node), edit.input, own("tensor_exchange"),
                {edit.shard.dim, edit.count, site});
    }

    void exchange_output(const TensorEdit& edit, Node* node) {
        const Bytes bytes{flow_.graph().bytes(edit.node->output())};
        const int64_t site =
            add_site(plan::TensorCollectiveKind::kExchange, *edit.node, bytes, bytes);
        const WithInsertPoint behind(node->next());
        Value*& twin = made_.twins.values.at(edit.node->output());
        Value* back =
            insert_like(*node, own("tensor_exchange"), {twin, edit.count, edit.shard.dim, site});
        back->setType(twin->type());
        twin->replaceAllUsesAfterNodeWith(back->node(), back);
        twin = back;
    }

    // Returns the sum of SUMMAND over the ranks. If EDIT keeps only a share of the sum, returns the
    // share.
    Value* sum_of(const TensorEdit& edit, Node* node, Value* summand) {
        const Bytes bytes{flow_.graph().bytes(edit.node->output())};
        if (!edit.keep) {
            const int64_t site =
                add_site(plan::TensorCollectiveKind::kReduce, *edit.node, bytes, {});
            return insert_like(*node, own("tensor_reduce"), {summand, site});
        }
        const int64_t site =
            add_site(plan::TensorCollectiveKind::kReduceScatter, *edit.node, bytes, bytes);
        return insert_like(*node, own("tensor_reduce_scatter"),
                           {summand, edit.keep->dim, edit.keep->blocks, site});
    }

    void apply(const TensorEdit& edit) {
        Node* node = made_.twins.nodes.at(edit.node);
        const WithInsertPoint before(node);
        const auto& [dim, blocks] = edit.shard;
        switch (edit.kind) {
            case EditKind::kScatter:
                return collect_input(edit, "tensor_scatter", plan::TensorCollectiveKind::kScatter);
            case EditKind::kRepeat:
                return replace(node, edit.input, aten::repeat_interleave, {edit.count, dim});
            case EditKind::kExchange:
                return exchange_input(edit);
            case EditKind::kExchangeBack:
                return exchange_output(edit, node);
            case EditKind::kRowLoss:
                return stand_in(edit,
                                sum_of(edit, node,
                                       insert_like(*node, own("tensor_row_loss"),
                                                   {node->input(0), node->input(1), node->input(3),
                                                    node->input(4), node->input(5), dim, blocks})));
            case EditKind::kShare:
                return replace(node, edit.input, own("tensor_share"), {dim, blocks});
            case EditKind::kRepeatShare:
                replace(node, edit.input, aten::repeat_interleave, {edit.count, dim});
                return replace(node, edit.input, own("tensor_share"), {dim, blocks});
            case EditKind::kGather:
                return collect_input(edit, "tensor_gather", plan::TensorCollectiveKind::kGather);
            case EditKind::kShape:
                return replace(node, edit.input, own("tensor_shape"), {edit.count, blocks});
            case EditKind::kDivide:
                return divide(edit, node);
            case EditKind::kSum:
                return sum_output(edit, node);
            case EditKind::kEmbedding:
                return embedding(edit, node);
            case EditKind::kCrossEntropy:
                return cross_entropy(edit, node);
            case EditKind::kDropout:
                return stand_in(edit, insert_like(*node, own("tensor_dropout"),
                                                  {node->input(0), node->input(1), node->input(2),
                                                   dim, blocks}));
            case EditKind::kAttention:
                return attention(edit, node);
            case EditKind::kRing:
                return ring_attention(edit, node);
            case EditKind::kExtent:
                return whole_extent(edit, node);
            case EditKind::kCopy:
            case EditKind::kGatherSum:
            case EditKind::kSummand:
                break;
        }
        DSL_CHECK(false, "no such edit");
    }

    // Passes input INDEX of NODE through an operator KIND with ARGUMENTS.
    void replace(Node* node, size_t index, Symbol kind, const std::vector<NamedValue>& arguments) {
        std::vector<NamedValue> all = {node->input(index)};
        all.insert(all.end(), arguments.begin(), arguments.end());
        node->replaceInput(index, insert_like(*node, kind, all));
    }

    // Replaces the output of EDIT's node by VALUE.
    void stand_in(const TensorEdit& edit, Value* value) {
        Value*& twin = made_.twins.values.at(edit.node->output());
        value->setType(twin->type());
        twin->replaceAllUsesWith(value);
        replaced_.push_back(twin->node());
        twin = value;
    }

    void divide(const TensorEdit& edit, Node* node) {
        if (edit.count >= 0) {
            node->replaceInput(edit.input, graph().insertConstant(edit.count));
            return;
        }
        const int64_t size = flow_.size();
        if (!is_list(*node->input(edit.input)))
            return replace(node, edit.input, aten::floordiv, {size});
        const size_t entries = flow_.graph().list_size(edit.node->output());
        for (size_t entry = 0; entry < entries; ++entry)
            replace(node, edit.input, own("tensor_shape"),
                    {static_cast<int64_t>(entry), std::vector<int64_t>{size}});
    }

    // Sums the products of all ranks, then adds a bias once.
    void sum_output(const TensorEdit& edit, Node* node) {
        Value* bias = nullptr;
        Value* product = node->output();
        const WithInsertPoint behind(node->next());
        if (node->kind() == aten::linear) {
            if (node->input(2)->type()->kind() != c10::TypeKind::NoneType) {
                bias = node->input(2);
                const WithInsertPoint before(node);
                node->replaceInput(2, graph().insertConstant(IValue()));
            }
        } else if (node->kind() == aten::addmm) {
            bias = node->input(0);
            product = insert_like(*node, aten::mm, {node->input(1), node->input(2)});
        }
        Value* sum = sum_of(edit, node, product);
        if (edit.count != 0) sum = insert_like(*node, aten::div, {sum, edit.count});
        if (bias != nullptr) sum = insert_like(*node, aten::add, {sum, bias});
        Value*& twin = made_.twins.values.at(edit.node->output());
        sum->setType(twin->type());
        twin->replaceAllUsesAfterNodeWith(sum->node(), sum);
        twin = sum;
        if (product != node->output()) replaced_.push_back(node);
    }

    void attention(const TensorEdit& edit, Node* node) {
        std::vector<NamedValue> arguments(node->inputs().begin(), node->inputs().end());
        arguments.emplace_back(edit.shard.dim);
        arguments.emplace_back(edit.shard.blocks.front());
        stand_in(edit, insert_like(*node, own("tensor_attention"), arguments));
    }

    void ring_attention(const TensorEdit& edit, Node* node) {
        const int64_t forward =
            flow_.graph().bytes(edit.node->input(1)) + flow_.graph().bytes(edit.node->input(2));
        const int64_t site = add_site(plan::TensorCollectiveKind::kRing, *edit.node, Bytes{forward},
                                      Bytes{2 * forward});
        const auto at = [&](const char* name) {
            return node->input(node->schema().argumentIndexWithName(name).value());
        };
        stand_in(edit, insert_like(*node, own("tensor_ring_attention"),
                                   {at("query"), at("key"), at("value"), at("attn_mask"),
                                    at("is_causal"), at("scale"), at("enable_gqa"), site}));
    }

    void embedding(const TensorEdit& edit, Node* node) {
        Value* rows = insert_like(
            *node, own("tensor_embedding"),
            {node->input(0), node->input(1), node->input(2), edit.shard.blocks.front()});
        stand_in(edit, sum_of(edit, node, rows));
    }

    void cross_entropy(const TensorEdit& edit, Node* node) {
        // The number of values that ranks exchange for each row, in fp32: the largest logit, the
        // sum of exponentials, and the target's logit.
        constexpr int64_t kNumbers = 3;
        const int64_t rows = flow_.graph().sizes(edit.node->input(0))[0];
        const int64_t site = add_site(plan::TensorCollectiveKind::kLoss, *edit.node,
                                      Bytes{rows * kNumbers * int64_t{sizeof(float)}}, {});
        stand_in(edit, insert_like(*node, own("tensor_cross_entropy"),
                                   {node->input(0), node->input(1), node->input(3), node->input(4),
                                    edit.shard.blocks.front(), site}));
    }

    void whole_extent(const TensorEdit& edit, Node* node) {
        const WithInsertPoint behind(node->next());
        Value*& twin = made_.twins.values.at(edit.node->output());
        Value* whole = nullptr;
        if (edit.count < 0) {
            whole = insert_like(*node, own("tensor_extent"), {twin, edit.shard.blocks});
        } else {
            std::vector<Value*> extents;
            const size_t dims = flow_.graph().sizes(edit.node->input(0)).size();
            for (size_t d = 0; d < dims; ++d) {
                const auto entry = static_cast<int64_t>(d);
                extents.push_back(insert_like(*node, aten::__getitem__, {twin, entry}));
                if (entry == edit.count)
                    extents.back() = insert_like(*node, own("tensor_extent"),
                                                 {extents.back(), edit.shard.blocks});
            }
            Node* list = graph().insertNode(graph().createList(c10::IntType::get(), extents));
            list->copyMetadata(node);
            whole = list->output();
        }
        twin->replaceAllUsesAfterNodeWith(whole->node(), whole);
        twin = whole;
    }

    const PlacementFlow& flow_;
    TensorModel made_;
    std::unordered_map<const Value*, Value*> copies_;
    std::unordered_map<const Value*, Value*> gathered_;
    std::vector<Node*> replaced_;  // nodes whose outputs are no longer read
};

// The parameters that some node reads to compute a rank's share of the work. If all nodes that read
// a parameter do so, the parameter is in `all`; otherwise it is in `mixed`.
struct SummandUses {
    std::set<const Value*> mixed;
    std::set<const Value*> all;  // every node reads the share
};

SummandUses summand_uses(const LoweredGraph& lowered, const PlacementFlow& flow) {
    std::unordered_map<const Value*, size_t> summands;
    for (const TensorEdit& edit : flow.edits())
        if (edit.kind == EditKind::kSummand) ++summands[edit.node->input(edit.input)];
    SummandUses uses;
    for (size_t i = 0; i < lowered.parameters.size(); ++i) {
        const Value* input = lowered.graph->inputs()[lowered.first_parameter() + i];
        const bool copied = flow.placement_of(input).kind == TensorPlacement::Kind::kCopied;
        const auto found = summands.find(input);
        if (copied || (found != summands.end() && found->second == input->uses().size())) {
            uses.all.insert(input);
        } else if (found != summands.end()) {
            uses.mixed.insert(input);
        }
    }
    return uses;
}

std::vector<plan::TensorParameter> describe_parameters(const Model& model,
                                                       const LoweredGraph& lowered,
                                                       const TensorFindings& found,
                                                       const SummandUses& uses) {
    std::vector<plan::TensorParameter> described;
    for (size_t p = 0; p < model.parameters().size(); ++p) {
        const ModelParameter& parameter = model.parameters()[p];
        const int index = static_cast<int>(p);
        plan::TensorParameter made;
        made.name = parameter.name;
        made.sizes = parameter.tensor.sizes().vec();
        made.trainable = parameter.tensor.requires_grad();
        const auto decided = found.decisions.parameters.find(index);
        if (decided != found.decisions.parameters.end() && decided->second.is_shard()) {
            made.rule = found.rules.at(index);
            made.shard = decided->second.shard;
            made.gradient = plan::TensorGradient::kOwn;
        }
        if (const auto why = found.why.find(index); why != found.why.end()) made.why = why->second;
        made.unproven = found.unproven.count(index) > 0;
        described.push_back(std::move(made));
    }
    for (size_t i = 0; i < lowered.parameters.size(); ++i)
        if (uses.all.count(lowered.graph->inputs()[lowered.first_parameter() + i]) > 0)
            described[lowered.parameters[i]].gradient = plan::TensorGradient::kSummand;
    return described;
}

void refuse_module(const LoweredGraph& lowered) {
    if (lowered.takes_module)
        fail(ExitCode::kInput,
             "tensor parallelism: {} takes a whole module as an argument, so the call cannot be "
             "analyzed; call a method of a concrete module class instead",
             lowered.opaque_node);
}

// Carries out the edits of FLOW's last follow().
TensorModel rewrite(const Model& model, const LoweredGraph& lowered, const PlacementFlow& flow,
                    const TensorFindings& found) {
    const SummandUses uses = summand_uses(lowered, flow);
    Rewriter rewriter(lowered, flow);
    rewriter.run(uses.mixed);
    TensorModel made = rewriter.take();
    made.plan.size = flow.size();
    made.plan.parameters = describe_parameters(model, lowered, found, uses);
    for (const auto& [value, twin] : made.twins.values) {
        static_cast<void>(twin);
        if (const TensorPlacement placement = flow.placement_of(value); !placement.is_whole())
            made.placements[value] = placement;
    }
    return made;
}

// Returns which of COUNT parameters are weights of linear layers in GRAPH.
std::vector<bool> linear_weights(const FlowGraph& graph, size_t count) {
    std::vector<bool> is_linear(count, false);
    for (const Node* node : graph.nodes())
        if (const auto form = graph.linear_form(*node))
            if (const auto origin = graph.origin_of(node->input(form->weight)))
                is_linear[static_cast<size_t>(origin->parameter)] = true;
    return is_linear;
}

}  // namespace

TensorModel make_tensor_parallel(const Model& model, const LoweredGraph& lowered,
                                 const GraphInputs& inputs, const plan::TensorRules& rules) {
    refuse_module(lowered);
    register_tensor_operators();
    std::vector<std::string> names;
    for (const ModelParameter& parameter : model.parameters()) names.push_back(parameter.name);

    const GraphFacts facts = observe(model, lowered, inputs);
    PlacementFlow flow(model, lowered, facts, rules.size);
    const auto given =
        plan::match_tensor_rules(rules, names, linear_weights(flow.graph(), names.size()));
    const TensorFindings found = find_tensor_rules(flow, model, given, rules.strict);
    if (rules.share_positions) flow.split_positions(PositionSplit::kBetweenLayers);
    const auto obstacle = flow.follow(found.decisions, 0, flow.graph().nodes().size());
    if (obstacle && rules.share_positions)
        fail(ExitCode::kInput,
             "tensor parallelism of {} ranks: the ranks cannot share the positions between split "
             "layers: {}: {}. Leave dslaunch.tensor.share_positions (--share-positions) out",
             flow.size(), describe_node(*obstacle->node), obstacle->reason);
    DSL_CHECK(!obstacle, "regions that can be split one by one cannot be split together: {}: {}",
              describe_node(*obstacle->node), obstacle->reason);
    return rewrite(model, lowered, flow, found);
}

TensorModel make_sequence_parallel(const Model& model, const LoweredGraph& lowered,
                                   const GraphInputs& inputs, int size) {
    refuse_module(lowered);
    register_tensor_operators();
    const GraphFacts facts = observe(model, lowered, inputs);
    PlacementFlow flow(model, lowered, facts, size);
    flow.split_positions(PositionSplit::kEverywhere);
    TensorFindings found;
    for (const int parameter : lowered.parameters) {
        found.decisions.parameters[parameter] = {TensorPlacement::Kind::kCopied, {}, parameter};
        found.why[parameter] = "each rank uses the whole parameter for its share of the positions";
    }
    const auto obstacle = flow.follow(found.decisions, 0, flow.graph().nodes().size());
    if (obstacle)
        fail(ExitCode::kInput,
             "sequence parallelism of {} ranks: the positions of a sample cannot be split: {}: {}",
             size, describe_node(*obstacle->node), obstacle->reason);
    return rewrite(model, lowered, flow, found);
}

std::vector<at::Tensor> tensor_shares(const std::vector<at::Tensor>& parameters,
                                      const plan::TensorPlan& plan, PartOf part) {
    std::vector<at::Tensor> shares;
    for (size_t p = 0; p < parameters.size(); ++p) {
        const plan::TensorParameter& parameter = plan.parameters[p];
        shares.push_back(parameter.rule == plan::TensorRule::kReplicated
                             ? parameters[p]
                             : share_of(parameters[p], parameter.shard, part));
    }
    return shares;
}

}  // namespace dslaunch::graph
