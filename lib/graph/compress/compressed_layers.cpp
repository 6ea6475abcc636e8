#include "graph/compress/compressed_layers.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <regex>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "base/text/fnv1a.h"
#include "graph/adapter/linear_layers.h"
#include "graph/compress/compressible_layers.h"
#include "graph/compress/compression_operators.h"
#include "graph/nodes/graph_nodes.h"

namespace dslaunch::graph {

namespace {

using config::CompressedGroup;

constexpr const char* kAll = "*";

// A kind of compression: its key, and the layers that it can change.
struct Method {
    const char* key;  // in compression_training
    const char* layers;
    bool linear;
    bool table;
    bool convolution;

    [[nodiscard]] bool takes(const CompressibleLayer& layer) const {
        return layer.sort == LayerSort::kLinear  ? linear
               : layer.sort == LayerSort::kTable ? table
                                                 : convolution;
    }
};

constexpr const char* kProducts = "linear layer or convolution";
constexpr Method kWeights{"weight_quantization", "linear layer, convolution or table", true, true,
                          true};
constexpr Method kActivations{"activation_quantization", kProducts, true, false, true};
constexpr Method kSparse{"sparse_pruning", kProducts, true, false, true};
constexpr Method kRows{"row_pruning", "linear layer", true, false, false};
constexpr Method kHeads{"head_pruning", "linear layer", true, false, false};
constexpr Method kChannels{"channel_pruning", "convolution", false, false, true};

std::string path_of(const Method& method, const CompressedGroup& group) {
    return fmt::format("compression_training.{}.different_groups.{}", method.key,
                       printable(group.name));
}

class Compressor {
  public:
    Compressor(Model& model, LoweredGraph& lowered, const CompressOptions& options)
        : model_(model),
          lowered_(lowered),
          options_(options),
          layers_(in_order(find_compressible_layers(model, lowered))),
          of_layer_(layers_.size()),
          of_bias_(layers_.size()) {}

    void run() {
        register_compression_operators();
        const config::CompressionConfig& config = options_.config;
        for_chosen(kWeights, config.weights.parts,
                   [&](size_t layer, const Chosen& chosen) { round(layer, *chosen.group); });
        prune(kSparse, config.sparse, MaskSort::kElements);
        prune(kRows, config.rows, MaskSort::kRows);
        prune(kHeads, config.heads, MaskSort::kHeads);
        prune(kChannels, config.channels, MaskSort::kRows);
        for_chosen(kActivations, config.activations.parts,
                   [&](size_t layer, const Chosen& chosen) { activate(layer, *chosen.group); });
        for (size_t i = 0; i < layers_.size(); ++i) rewrite(i);
    }

  private:
    // Returns LAYERS in the order of the model's parameters, because the config lists related
    // modules in this order.
    static std::vector<CompressibleLayer> in_order(std::vector<CompressibleLayer> layers) {
        std::ranges::sort(layers, {}, &CompressibleLayer::parameter);
        return layers;
    }

    // The reason why a layer is changed: its group, the pattern that found it, and its number among
    // the layers that the pattern found.
    struct Chosen {
        const CompressedGroup* group = nullptr;
        size_t pattern = 0;
        size_t number = 0;
    };

    // Calls USE with each layer that METHOD changes, and with the reason.
    template <typename Use>
    void for_chosen(const Method& method, const std::vector<CompressedGroup>& parts,
                    const Use& use) {
        std::map<size_t, std::string> group_of;
        for (const CompressedGroup& group : parts)
            for (size_t p = 0; p < group.modules.size(); ++p) {
                const std::string& pattern = group.modules[p];
                const std::regex expression(pattern == kAll ? "" : pattern);
                size_t found = 0;
                for (size_t i = 0; i < layers_.size(); ++i) {
                    const CompressibleLayer& layer = layers_[i];
                    if (!method.takes(layer)) continue;
                    if (pattern == kAll && layer.sort == LayerSort::kTable) continue;
                    if (!is_named(layer, expression)) continue;
                    const auto [known, fresh] = group_of.emplace(i, group.name);
                    if (fresh) {
                        use(i, Chosen{&group, p, found});
                    } else if (known->second != group.name) {
                        fail(ExitCode::kConfig,
                             "{}.modules: `{}` is also in the group `{}`; a layer can be in one "
                             "group of {} only",
                             path_of(method, group), printable(layers_[i].names.front()),
                             printable(known->second), method.key);
                    }
                    ++found;
                }
                if (found == 0) refuse_pattern(method, group, pattern);
            }
    }

    [[nodiscard]] static bool is_named(const CompressibleLayer& layer,
                                       const std::regex& expression) {
        return std::ranges::any_of(layer.names, [&](const std::string& name) {
            return std::regex_search(name, expression);
        });
    }

    [[noreturn]] void refuse_pattern(const Method& method, const CompressedGroup& group,
                                     const std::string& pattern) const {
        std::vector<std::string> names;
        for (const CompressibleLayer& layer : layers_)
            if (method.takes(layer)) names.push_back(layer.names.front());
        constexpr size_t kShownMax = 3;
        std::vector<std::string> shown(names.begin(),
                                       names.begin() + std::min(kShownMax, names.size()));
        fail(ExitCode::kConfig, "{}.modules: `{}` is found in the name of no {}; {}",
             path_of(method, group), printable(pattern), method.layers,
             names.empty() ? "the model has none"
                           : fmt::format("names are like {}", printable(join(shown, ", "))));
    }

    void round(size_t index, const CompressedGroup& group) {
        const CompressibleLayer& layer = layers_[index];
        const config::WeightQuantization& config = options_.config.weights;
        const at::Tensor& weight = model_.parameters()[layer.parameter].tensor;
        const bool is_table = layer.sort == LayerSort::kTable || layer.is_also_table;
        CompressedParameter& made = of_layer_[index];
        made.is_rounded = true;
        WeightRounding& rounding = made.rounding;
        rounding.is_transposed = layer.is_transposed;
        rounding.grid.is_symmetric = config.is_symmetric;
        rounding.grid.is_stochastic = config.is_stochastic && !config.in_forward;
        // Rounds each row of a table as a separate group if rounding is part of the forward pass,
        // as DeepSpeed does.
        rounding.grid.groups = config.in_forward && is_table ? weight.size(0) : config.groups;
        rounding.schedule = {
            config.in_forward, group.start_bits,
            group.target_bits, group.period,
            config.offset,     config.mixes && !config.in_forward ? config.change_ratio : 0};
        if (weight.numel() % rounding.grid.groups != 0)
            fail(ExitCode::kConfig,
                 "compression_training.weight_quantization.shared_parameters.quantize_groups: "
                 "`{}` has {} elements, which cannot be divided into {} equal groups",
                 printable(layer.names.front()), weight.numel(), rounding.grid.groups);
    }

    void prune(const Method& method, const config::Pruning& config, MaskSort sort) {
        for_chosen(method, config.parts, [&](size_t index, const Chosen& chosen) {
            const CompressedGroup& group = *chosen.group;
            const CompressibleLayer& layer = layers_[index];
            const at::Tensor& weight = model_.parameters()[layer.parameter].tensor;
            if (sort == MaskSort::kHeads &&
                weight.size(layer.is_transposed ? 0 : 1) % config.heads != 0)
                fail(ExitCode::kConfig,
                     "compression_training.head_pruning.shared_parameters.num_heads: `{}` has {} "
                     "inputs, which cannot be divided among {} heads",
                     printable(layer.names.front()), weight.size(layer.is_transposed ? 0 : 1),
                     config.heads);
            WeightMask mask;
            mask.sort = sort;
            mask.is_learned = config.learns;
            mask.ratio = group.dense_ratio;
            mask.offset = config.offset;
            mask.is_transposed = layer.is_transposed;
            mask.source = config.learns ? scores_of(layer, method, sort, config.heads)
                                        : mask_of(layer, method, sort, group.dense_ratio);
            of_layer_[index].masks.push_back(mask);
            const bool removes = sort != MaskSort::kElements;
            if (removes && !group.related.empty()) shrink(index, mask, chosen, method);
            if (sort != MaskSort::kRows) return;
            mask.is_transposed = false;
            of_bias_[index].push_back(mask);
        });
    }

    // Records the dimensions that shrink with layer INDEX, whose mask is MASK.
    void shrink(size_t index, const WeightMask& mask, const Chosen& chosen, const Method& method) {
        const CompressibleLayer& layer = layers_[index];
        const bool by_heads = mask.sort == MaskSort::kHeads;
        Shrink made;
        made.mask = mask;
        const int64_t dim = by_heads != layer.is_transposed ? 1 : 0;
        const at::Tensor& weight = model_.parameters()[layer.parameter].tensor;
        const int64_t size = weight.size(dim);
        const auto add = [&](const Cut& cut) { add_cut(made, cut, size, chosen, method); };
        add({false, layer.parameter, dim});
        if (!by_heads)
            for (const Value* const bias : layer.biases) add({false, parameter_of(bias), 0});
        for (const std::string& pattern : chosen.group->related[chosen.pattern])
            for (const Cut& cut : cuts_of_related(mask, pattern, chosen, method)) add(cut);
        lowered_.shrinks.push_back(std::move(made));
    }

    // Adds CUT to MADE. Throws unless the dimension of CUT has SIZE elements, the size of the
    // pruned dimension of the layer CHOSEN. There is one exception: if channels are pruned, a
    // matrix that reads flattened outputs of the convolution may have `n * SIZE` elements in this
    // dimension.
    void add_cut(Shrink& made, const Cut& cut, int64_t size, const Chosen& chosen,
                 const Method& method) const {
        const at::Tensor& tensor = cut.is_buffer ? model_.buffers()[cut.index].tensor
                                                 : model_.parameters()[cut.index].tensor;
        const std::string& name =
            cut.is_buffer ? model_.buffers()[cut.index].name : model_.parameters()[cut.index].name;
        const auto refuse = [&](const std::string& why) {
            fail(ExitCode::kConfig, "{}.related_modules: `{}` {}", path_of(method, *chosen.group),
                 printable(name), why);
        };
        const int64_t found = tensor.size(cut.dim);
        const bool is_flat = std::string_view(method.key) == kChannels.key && tensor.dim() == 2 &&
                             found % size == 0 && found > 0;
        if (found != size && !is_flat)
            refuse(
                fmt::format("has {} elements in dimension {}, but match {} of the pattern `{}` has "
                            "{} in the pruned dimension: the patterns match modules that do not "
                            "belong together, or these modules cannot become smaller together",
                            found, cut.dim, chosen.number + 1,
                            printable(chosen.group->modules[chosen.pattern]), size));
        const auto has_it = [&](const Shrink& shrink) {
            return std::ranges::any_of(shrink.cuts, [&](const Cut& other) {
                return other.is_buffer == cut.is_buffer && other.index == cut.index &&
                       other.dim == cut.dim;
            });
        };
        if (has_it(made)) return;
        if (std::ranges::any_of(lowered_.shrinks, has_it))
            refuse(
                fmt::format("would become smaller in dimension {} by two masks, which is not "
                            "supported: name the module in only one of the groups",
                            cut.dim));
        made.cuts.push_back(cut);
    }

    // Returns the cuts of a module that loses the same rows or columns as the layer CHOSEN, whose
    // mask is MASK. PATTERN finds this module.
    [[nodiscard]] std::vector<Cut> cuts_of_related(const WeightMask& mask,
                                                   const std::string& pattern, const Chosen& chosen,
                                                   const Method& method) const {
        const std::vector<std::string> modules = modules_named(pattern);
        if (modules.size() <= chosen.number)
            fail(ExitCode::kConfig,
                 "{}.related_modules: `{}` matches {} modules, so match {} of the pattern `{}` has "
                 "no related module",
                 path_of(method, *chosen.group), printable(pattern), modules.size(),
                 chosen.number + 1, printable(chosen.group->modules[chosen.pattern]));
        const std::string& module = modules[chosen.number];
        const bool by_heads = mask.sort == MaskSort::kHeads;
        std::vector<Cut> cuts;
        for (int p = 0; p < std::ssize(model_.parameters()); ++p) {
            const ModelParameter& parameter = model_.parameters()[p];
            if (module_of(parameter.name) != module || parameter.is_helper) continue;
            if (parameter.tensor.dim() == 1) {
                // Cuts a vector of a normalization, which has one element for each bit of the mask.
                // Does not cut the bias of a layer that reads pruned rows, because the bias belongs
                // to its outputs.
                if (by_heads || !has_matrix(module)) cuts.push_back({false, p, 0});
                continue;
            }
            cuts.push_back({false, p, by_heads == is_turned(p) ? 1 : 0});
        }
        for (int b = 0; b < std::ssize(model_.buffers()); ++b) {
            const ModelBuffer& buffer = model_.buffers()[b];
            if (module_of(buffer.name) == module && buffer.tensor.dim() == 1 && !has_matrix(module))
                cuts.push_back({true, b, 0});
        }
        return cuts;
    }

    // Returns the modules with parameters in whose names PATTERN is found, in the model's order.
    [[nodiscard]] std::vector<std::string> modules_named(const std::string& pattern) const {
        const std::regex expression(pattern == kAll ? "" : pattern);
        std::vector<std::string> modules;
        for (const ModelParameter& parameter : model_.parameters()) {
            const std::string module = module_of(parameter.name);
            if (parameter.is_helper || !std::regex_search(module, expression)) continue;
            if (std::ranges::find(modules, module) == modules.end()) modules.push_back(module);
        }
        return modules;
    }

    [[nodiscard]] bool has_matrix(const std::string& module) const {
        return std::ranges::any_of(model_.parameters(), [&](const ModelParameter& parameter) {
            return module_of(parameter.name) == module && parameter.tensor.dim() > 1;
        });
    }

    // Returns true if PARAMETER is the weight of a linear layer that is stored as [in, out].
    [[nodiscard]] bool is_turned(int parameter) const {
        return std::ranges::any_of(layers_, [&](const CompressibleLayer& layer) {
            return layer.parameter == parameter && layer.is_transposed;
        });
    }

    [[nodiscard]] int parameter_of(const Value* input) const {
        return lowered_.parameters[input->offset() - lowered_.first_parameter()];
    }

    [[nodiscard]] static std::string prefix_of(const Method& method) {
        const std::string key = method.key;
        return key.substr(0, key.find('_'));
    }

    // Returns LAYER's weight as [out, in].
    [[nodiscard]] at::Tensor turned(const CompressibleLayer& layer) const {
        const at::Tensor weight = model_.parameters()[layer.parameter].tensor.detach();
        return layer.is_transposed ? weight.t() : weight;
    }

    // Returns the buffer with the mask of LAYER, made from its weight.
    int mask_of(const CompressibleLayer& layer, const Method& method, MaskSort sort, double ratio) {
        const std::string name =
            fmt::format("{}.{}_pruning_mask", layer.names.front(), prefix_of(method));
        const int known = model_.buffer_named(name);
        if (known >= 0) return known;
        const at::NoGradGuard no_grad;
        const at::Tensor weight = turned(layer).to(at::kFloat);
        if (sort == MaskSort::kElements)
            return model_.add_buffer(name, largest(weight.abs(), ratio).contiguous());
        const at::Tensor rows = weight.reshape({weight.size(0), -1});
        return model_.add_buffer(name, largest(at::linalg_vector_norm(rows, 1, {1}), ratio));
    }

    // Returns the parameter with the scores of LAYER. New scores are drawn as PyTorch draws
    // weights.
    int scores_of(const CompressibleLayer& layer, const Method& method, MaskSort sort,
                  int64_t heads) {
        const std::string prefix = prefix_of(method);
        const std::string name =
            fmt::format("{}.{}", layer.names.front(),
                        sort == MaskSort::kHeads ? "head_pruning_scores" : prefix + "_mask_scores");
        const auto& parameters = model_.parameters();
        for (int i = 0; i < std::ssize(parameters); ++i)
            if (parameters[i].name == name) return i;
        const at::NoGradGuard no_grad;
        const at::Tensor weight = turned(layer);
        std::vector<int64_t> sizes = weight.sizes().vec();
        int64_t inputs = sizes.empty() ? 1 : weight.numel() / sizes[0];
        if (sort == MaskSort::kRows) {
            std::fill(sizes.begin() + 1, sizes.end(), 1);
            inputs = 1;
        } else if (sort == MaskSort::kHeads) {
            sizes = {1, heads};
            inputs = heads;
        }
        const double bound = 1 / std::sqrt(static_cast<double>(inputs));
        at::Generator generator =
            at::detail::createCPUGenerator(options_.seed ^ fnv1a(kFnv1aBegin, name));
        at::Tensor scores = at::empty(sizes, at::kFloat).uniform_(-bound, bound, generator);
        return model_.add_parameter(name, scores.set_requires_grad(true), /*is_helper=*/true);
    }

    void activate(size_t index, const CompressedGroup& group) {
        const config::ActivationQuantization& config = options_.config.activations;
        const CompressibleLayer& layer = layers_[index];
        ActivationRounding rounding;
        rounding.bits = group.bits;
        rounding.is_symmetric = config.is_symmetric;
        rounding.is_by_sample = layer.sort == LayerSort::kConvolution;
        rounding.offset = config.offset;
        rounding.moves_range = options_.trains;
        Value* range = nullptr;
        if (config.is_static) {
            const std::string name = layer.names.front() + ".activation_quantizer.x_min_max";
            int buffer = model_.buffer_named(name);
            if (buffer < 0) buffer = model_.add_buffer(name, at::zeros({2}, at::kFloat));
            range = input_of_buffer(buffer);
        }
        for (const NodeInput& read : layer.input_reads) {
            const WithInsertPoint before(read.node);
            Value* const values = read.node->input(read.input);
            Value* const rounded = range == nullptr
                                       ? insert_rounding(*lowered_.graph, values, rounding)
                                       : insert_rounding(*lowered_.graph, values, range, rounding);
            rounded->node()->copyMetadata(read.node);
            rounded->setType(values->type());
            read.node->replaceInput(read.input, rounded);
        }
    }

    // Return the graph's inputs for a parameter and a buffer, which are added if they are missing.
    Value* input_of_parameter(int parameter) {
        const auto found = std::ranges::find(lowered_.parameters, parameter);
        if (found != lowered_.parameters.end())
            return lowered_.graph
                ->inputs()[lowered_.first_parameter() + (found - lowered_.parameters.begin())];
        return add_parameter_input(lowered_, parameter);
    }

    Value* input_of_buffer(int buffer) {
        const auto found = std::ranges::find(lowered_.buffers, buffer);
        if (found != lowered_.buffers.end())
            return lowered_.graph
                ->inputs()[lowered_.first_buffer() + (found - lowered_.buffers.begin())];
        return add_buffer_input(lowered_, buffer);
    }

    // Inserts the rounding and the masks of MADE before the nodes that read the parameter. READS:
    // the inputs at which these nodes read it.
    void change(const std::vector<NodeInput>& reads, const CompressedParameter& made) {
        for (const NodeInput& read : reads) {
            const WithInsertPoint before(read.node);
            Value* const original = read.node->input(read.input);
            Value* value = original;
            const auto like_read = [&](Value* changed) {
                changed->node()->copyMetadata(read.node);
                changed->setType(original->type());
                value = changed;
            };
            if (made.is_rounded)
                like_read(insert_rounding(*lowered_.graph, value, made.rounding, made.parameter));
            for (const WeightMask& mask : made.masks) {
                Value* const source = mask.is_learned ? input_of_parameter(mask.source)
                                                      : input_of_buffer(mask.source);
                like_read(insert_mask(*lowered_.graph, value, source, mask));
            }
            read.node->replaceInput(read.input, value);
        }
    }

    void rewrite(size_t index) {
        CompressibleLayer& layer = layers_[index];
        CompressedParameter& made = of_layer_[index];
        made.parameter = layer.parameter;
        if (made.is_rounded || !made.masks.empty()) {
            change(layer.weight_reads, made);
            lowered_.compressed.push_back(made);
        }
        if (of_bias_[index].empty()) return;
        for (Value* const bias : layer.biases) {
            std::vector<NodeInput> reads;
            for (const auto& use : bias->uses()) reads.push_back({use.user, use.offset});
            CompressedParameter of_bias;
            of_bias.parameter = parameter_of(bias);
            of_bias.masks = of_bias_[index];
            change(reads, of_bias);
            lowered_.compressed.push_back(of_bias);
        }
    }

    Model& model_;
    LoweredGraph& lowered_;
    const CompressOptions& options_;
    std::vector<CompressibleLayer> layers_;
    std::vector<CompressedParameter> of_layer_;
    std::vector<std::vector<WeightMask>> of_bias_;
};

}  // namespace

void compress_layers(Model& model, LoweredGraph& lowered, const CompressOptions& options) {
    if (lowered.takes_module)
        fail(ExitCode::kInput,
             "compression_training: {} takes a whole module as an argument, so the layers of the "
             "module cannot be found; call a method of a concrete module class instead, or remove "
             "the section",
             lowered.opaque_node);
    Compressor(model, lowered, options).run();
}

std::string fingerprint_of_masks(const Model& model, const LoweredGraph& lowered) {
    std::set<int> buffers;
    for (const CompressedParameter& made : lowered.compressed)
        for (const WeightMask& mask : made.masks)
            if (!mask.is_learned) buffers.insert(mask.source);
    if (buffers.empty()) return "";
    uint64_t hash = kFnv1aBegin;
    for (const int buffer : buffers) {
        const ModelBuffer& mask = model.buffers()[buffer];
        const at::Tensor bits = mask.tensor.to(at::kCPU).contiguous();
        hash = fnv1a(hash, mask.name);
        hash = fnv1a(hash, {static_cast<const char*>(bits.const_data_ptr()), bits.nbytes()});
    }
    return fmt::format("{:016x}", hash);
}

}  // namespace dslaunch::graph
