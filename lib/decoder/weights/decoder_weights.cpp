#include "decoder/weights/decoder_weights.h"

#include <fmt/core.h>

#include <utility>

#include "base/error.h"
#include "kernels/matrix/attend.h"

namespace dslaunch::decoder {

using storage::HeadNormKind;
using storage::NormKind;
using storage::ProjectionKind;
using storage::TransformerConfig;

namespace {

// Returns part INDEX of NUMEL items, divided as evenly as possible.
Range even_part(int64_t numel, PartOf part) {
    const int64_t begin = numel * part.index / part.parts;
    return {begin, numel * (part.index + 1) / part.parts - begin};
}

class DecoderLoader {
  public:
    DecoderLoader(const TransformerConfig& config, const DecoderPart& part, WeightSource& source)
        : config_(config), source_(source), tensor_{part.tensor_rank, part.tensor_ranks} {
        if (config.key_heads % tensor_.parts != 0)
            fail(ExitCode::kUsage,
                 "{} tensor ranks: the model's {} key heads cannot be divided evenly among them; "
                 "use a number of ranks that divides {}",
                 tensor_.parts, config.key_heads, config.key_heads);
        made_.part = part;
        made_.heads = config.heads / tensor_.parts;
        made_.key_heads = config.key_heads / tensor_.parts;
        made_.vocabulary = even_part(config.vocabulary, tensor_);
    }

    DecoderWeights load() {
        const std::string decoder = name("decoder");
        const DecoderPart& part = made_.part;
        const bool is_last = part.last_layer == std::ssize(config_.layers);
        if (part.first_layer == 0) {
            made_.embedding =
                source_.table(in(decoder, "embed") + ".weight", config_.vocabulary, config_.width);
            if (config_.has_learned_positions)
                made_.positions = source_.table(in(decoder, "positions") + ".weight",
                                                config_.context, config_.width);
        }
        for (int64_t i = part.first_layer; i < part.last_layer; ++i)
            made_.layers.push_back(layer(fmt::format("{}.{}", in(decoder, "layers"), i),
                                         config_.layers[static_cast<size_t>(i)]));
        if (is_last) {
            made_.norm = norm(in(decoder, "norm"), config_.width);
            const std::string head = config_.is_tied ? in(decoder, "embed") : name("head");
            MatrixPart rows = whole(head + ".weight", config_.vocabulary, config_.width);
            rows.outputs = made_.vocabulary;
            made_.head.weight = matrix(rows);
            if (config_.has_head_bias)
                made_.head.bias =
                    source_.vector(name("head") + ".bias", {config_.vocabulary}, made_.vocabulary);
            source_.add_to_bias(name("head") + ".bias", config_.vocabulary, made_.vocabulary,
                                made_.head.bias);
            made_.head.adapter = source_.low_rank(rows);
        }
        if (part.first_layer == 0 && is_last) source_.require_all_taken();
        return std::move(made_);
    }

  private:
    const std::string& name(const char* ours) const { return config_.names.at(ours); }
    std::string in(const std::string& path, const char* ours) const {
        return fmt::format("{}.{}", path, name(ours));
    }

    static MatrixPart whole(std::string name, int64_t out, int64_t in) {
        return {std::move(name), out, in, false, {0, out}, {0, in}};
    }
    // Returns the whole matrix of a layer. Some model families store the matrices of layers
    // transposed, but not the other matrices.
    MatrixPart whole_of_layer(const std::string& path, int64_t out, int64_t in) const {
        MatrixPart part = whole(path + ".weight", out, in);
        part.transposed = config_.is_transposed;
        return part;
    }

    OwnedMatrix matrix(const MatrixPart& part) {
        OwnedMatrix made = source_.matrix(part);
        const int64_t bytes = kernels::matrix_bytes(made.matrix.shape);
        made_.bytes += bytes;
        if (made.file != nullptr) made_.mapped_bytes += bytes;
        return made;
    }

    // Sets the name and the input rounding of MADE, the layer with the stored weight NAME.
    void name_layer(const std::string& name, LinearWeights& made) {
        made.name = name;
        made.inputs = source_.input_rounding(name);
        if (made.inputs != storage::InputRounding::kNone && tensor_.parts > 1)
            fail(ExitCode::kUsage,
                 "{} tensor ranks: the model rounds the inputs of a layer with a scale from the "
                 "largest input, which may be on another rank; use --tensor-ranks 1",
                 tensor_.parts);
    }

    // Returns a linear layer that computes only the outputs of PART, which this rank holds.
    LinearWeights by_outputs(const std::string& path, const MatrixPart& part, bool bias) {
        LinearWeights made;
        made.weight = matrix(part);
        name_layer(part.name, made);
        if (bias) made.bias = source_.vector(path + ".bias", {part.out}, part.outputs);
        source_.add_to_bias(path + ".bias", part.out, part.outputs, made.bias);
        made.adapter = source_.low_rank(part);
        return made;
    }

    // Returns a linear layer that uses only the inputs INPUTS. The ranks' results must be summed to
    // get the outputs, so only one rank adds the bias.
    LinearWeights by_inputs(const std::string& path, int64_t out, int64_t in, Range inputs,
                            bool bias) {
        MatrixPart part = whole_of_layer(path, out, in);
        part.inputs = inputs;
        LinearWeights made;
        made.weight = matrix(part);
        name_layer(part.name, made);
        if (bias) made.bias = source_.vector(path + ".bias", out);
        source_.add_to_bias(path + ".bias", out, part.outputs, made.bias);
        if (tensor_.index != 0) made.bias.clear();
        made.adapter = source_.low_rank(part);
        return made;
    }

    // Returns a norm that is applied to the residual stream.
    NormWeights norm(const std::string& path, int64_t width) {
        return norm(path, {width}, {0, width}, config_.has_norm_bias);
    }

    // Returns a norm. OWN: the range of its weight that this rank holds.
    NormWeights norm(const std::string& path, const std::vector<int64_t>& sizes, Range own,
                     bool bias) {
        NormWeights made;
        made.is_present = true;
        if (config_.has_norm_weight) made.weight = source_.vector(path + ".weight", sizes, own);
        if (config_.norm == NormKind::kLayerOfOne)
            for (float& number : made.weight) number += 1;
        if (bias) made.bias = source_.vector(path + ".bias", sizes.back());
        return made;
    }

    // Returns a norm for the HEADS heads of this rank, out of TOTAL heads of queries or keys.
    NormWeights head_norm(const std::string& path, int64_t total, int64_t heads) {
        const int64_t width = config_.head_width;
        const Range own{tensor_.index * heads * width, heads * width};
        const bool bias = config_.has_head_norm_bias;
        switch (config_.head_norm) {
            case HeadNormKind::kNone:
                return {};
            case HeadNormKind::kShared:
                return norm(path, {width}, {0, width}, bias);
            case HeadNormKind::kEach:
                return norm(path, {total, width}, own, bias);
            case HeadNormKind::kWhole:
                return norm(path, {total * width}, own, bias);
            case HeadNormKind::kList:
                break;
        }
        NormWeights rows;
        rows.is_present = true;
        for (int64_t i = 0; i < total; ++i) {
            const NormWeights one =
                norm(fmt::format("{}.{}", in(path, "norms"), i), {width}, {0, width}, bias);
            if (i / heads == tensor_.index)
                rows.weight.insert(rows.weight.end(), one.weight.begin(), one.weight.end());
        }
        return rows;
    }

    LayerWeights layer(const std::string& path, const storage::TransformerLayer& what) {
        LayerWeights made;
        made.has_window = what.has_window;
        made.turns = what.turns;
        if (config_.has_norms_before)
            made.attention_norm = norm(in(path, "attention_norm"), config_.width);
        attention(in(path, "attention"), made);
        if (config_.has_norms_before && !config_.has_shared_norm)
            made.mlp_norm = norm(in(path, "mlp_norm"), config_.width);
        if (config_.has_norms_after) {
            made.attention_post_norm = norm(in(path, "attention_post_norm"), config_.width);
            made.mlp_post_norm = norm(in(path, "mlp_post_norm"), config_.width);
        }
        const std::string mlp_path = in(path, "mlp");
        if (!what.has_experts) {
            made.mlp = mlp(mlp_path, config_.mlp_width);
            return made;
        }
        const std::string router = in(mlp_path, "router");
        made.router =
            by_outputs(router, whole(router + ".weight", config_.experts, config_.width), false);
        for (int64_t i = 0; i < config_.experts; ++i)
            made.experts.push_back(
                mlp(fmt::format("{}.{}", in(mlp_path, "experts"), i), config_.expert_width));
        if (config_.shared_expert_width == 0) return made;
        made.shared_expert = mlp(in(mlp_path, "shared_expert"), config_.shared_expert_width);
        const std::string gate = in(mlp_path, "shared_expert_gate");
        if (config_.has_shared_expert_gate)
            made.shared_expert_gate =
                by_outputs(gate, whole(gate + ".weight", 1, config_.width), false);
        return made;
    }

    void attention(const std::string& path, LayerWeights& made) {
        const int64_t head = config_.head_width;
        const int64_t queries = config_.heads * head, keys = config_.key_heads * head;
        const Range own_queries{tensor_.index * made_.heads * head, made_.heads * head};
        const Range own_keys{tensor_.index * made_.key_heads * head, made_.key_heads * head};
        const bool bias = config_.has_projection_bias;
        const auto rows = [&](const std::string& layer, int64_t out, Range own, int64_t first) {
            MatrixPart part = whole_of_layer(layer, out, config_.width);
            part.outputs = {first + own.begin, own.numel};
            return by_outputs(layer, part, bias);
        };
        const std::string fused = in(path, "fused");
        switch (config_.projection) {
            case ProjectionKind::kSeparate:
                made.query = rows(in(path, "query"), queries, own_queries, 0);
                made.key = rows(in(path, "key"), keys, own_keys, 0);
                made.value = rows(in(path, "value"), keys, own_keys, 0);
                break;
            case ProjectionKind::kFused:
                made.query = rows(fused, queries + 2 * keys, own_queries, 0);
                made.key = rows(fused, queries + 2 * keys, own_keys, queries);
                made.value = rows(fused, queries + 2 * keys, own_keys, queries + keys);
                break;
            case ProjectionKind::kFusedByKey: {
                const int64_t heads_of_key = config_.heads / config_.key_heads + 2;
                made.fused =
                    rows(fused, queries + 2 * keys,
                         {heads_of_key * own_keys.begin, heads_of_key * own_keys.numel}, 0);
                break;
            }
        }
        if (config_.head_norm != HeadNormKind::kNone) {
            made.query_norm = head_norm(in(path, "query_norm"), config_.heads, made_.heads);
            made.key_norm = head_norm(in(path, "key_norm"), config_.key_heads, made_.key_heads);
        }
        made.output = by_inputs(in(path, "output"), config_.width, queries, own_queries,
                                config_.has_output_bias);
    }

    MlpWeights mlp(const std::string& path, int64_t width) {
        const Range own = even_part(width, tensor_);
        const auto rows = [&](const char* layer, int64_t out, int64_t first) {
            MatrixPart part = whole_of_layer(in(path, layer), out, config_.width);
            part.outputs = {first + own.begin, own.numel};
            return by_outputs(in(path, layer), part, config_.has_mlp_bias);
        };
        MlpWeights made;
        if (config_.is_gate_fused) {
            made.gate = rows("gate_up", 2 * width, 0);
            made.up = rows("gate_up", 2 * width, width);
        } else {
            if (config_.is_gated) made.gate = rows("gate", width, 0);
            made.up = rows("up", width, 0);
        }
        made.down = by_inputs(in(path, "down"), config_.width, width, own, config_.has_mlp_bias);
        return made;
    }

    const TransformerConfig& config_;
    WeightSource& source_;
    PartOf tensor_;
    DecoderWeights made_;
};

}  // namespace

DecoderWeights load_decoder(const TransformerConfig& config, const DecoderPart& part,
                            WeightSource& source) {
    if (config.head_width > kernels::kAttendWidthMax)
        fail(ExitCode::kInput,
             "config.json: heads have {} elements (`head_dim`, or `hidden_size` divided by "
             "`num_attention_heads`), but the decoder supports at most {}",
             config.head_width, kernels::kAttendWidthMax);
    return DecoderLoader(config, part, source).load();
}

DecoderPart decoder_part(const TransformerConfig& config, PartOf tensor, PartOf stage) {
    const int64_t layers = std::ssize(config.layers);
    if (stage.parts > layers)
        fail(ExitCode::kUsage, "{} stages: the model has only {} layers, and each stage needs one",
             stage.parts, layers);
    const Range own = even_part(layers, stage);
    return {own.begin, own.end(), tensor.index, tensor.parts};
}

}  // namespace dslaunch::decoder
