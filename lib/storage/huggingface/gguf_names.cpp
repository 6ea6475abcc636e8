#include "storage/huggingface/gguf_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/kinds/shape_text.h"
#include "base/text.h"
#include "storage/files/safetensors.h"
#include "storage/gguf/block_numbers.h"

namespace dslaunch::storage {
namespace {

// The known families. If several have the same name in llama.cpp, the first of them is used to read
// a file.
constexpr GgufFamily kFamilies[] = {
    {"LlamaForCausalLM", "llama", "llama", true},
    {"MistralForCausalLM", "llama", "mistral", true},
    {"MixtralForCausalLM", "llama", "mixtral", true},
    {"Qwen2ForCausalLM", "qwen2", "qwen2", false},
    {"Qwen3ForCausalLM", "qwen3", "qwen3", false},
    {"Qwen2MoeForCausalLM", "qwen2moe", "qwen2_moe", false},
    {"Qwen3MoeForCausalLM", "qwen3moe", "qwen3_moe", false},
    {"OlmoeForCausalLM", "olmoe", "olmoe", false},
    {"GemmaForCausalLM", "gemma", "gemma", false},
    {"Gemma2ForCausalLM", "gemma2", "gemma2", false},
    {"Gemma3ForCausalLM", "gemma3", "gemma3_text", false},
    {"OlmoForCausalLM", "olmo", "olmo", true},
    {"Olmo2ForCausalLM", "olmo2", "olmo2", false},
    {"CohereForCausalLM", "command-r", "cohere", true},
    {"Cohere2ForCausalLM", "cohere2", "cohere2", true},
    {"PhiForCausalLM", "phi2", "phi", false},
    {"Phi3ForCausalLM", "phi3", "phi3", false},
    {"SmolLM3ForCausalLM", "smollm3", "smollm3", true},
    {"GraniteForCausalLM", "granite", "granite", true},
    {"StableLmForCausalLM", "stablelm", "stablelm", false},
    {"Glm4ForCausalLM", "glm4", "glm4", true},
    {"SeedOssForCausalLM", "seed_oss", "seed_oss", false},
    {"Ernie4_5ForCausalLM", "ernie4_5", "ernie4_5", true},
    {"ArceeForCausalLM", "arcee", "arcee", true},
    {"NemotronForCausalLM", "nemotron", "nemotron", false},
    {"Starcoder2ForCausalLM", "starcoder2", "starcoder2", false},
    {"GPT2LMHeadModel", "gpt2", "gpt2", false},
    {"GPTBigCodeForCausalLM", "starcoder", "gpt_bigcode", false},
    {"GPTNeoXForCausalLM", "gptneox", "gpt_neox", false},
    {"FalconForCausalLM", "falcon", "falcon", false},
};

// Lists the tensors of one decoder.
class Lister {
  public:
    Lister(const TransformerConfig& config, const GgufFamily& family)
        : config_(config), family_(family) {}

    std::vector<GgufWeight> list() {
        const std::string decoder = name("decoder");
        add("token_embd", in(decoder, "embed"), {config_.vocabulary, config_.width});
        if (config_.has_learned_positions)
            add("position_embd", in(decoder, "positions"), {config_.context, config_.width});
        norm("output_norm", in(decoder, "norm"));
        if (!config_.is_tied) add("output", name("head"), {config_.vocabulary, config_.width});
        if (config_.has_head_bias) bias("output", name("head"), config_.vocabulary);
        for (size_t i = 0; i < config_.layers.size(); ++i)
            layer(fmt::format("blk.{}.", i), fmt::format("{}.{}", in(decoder, "layers"), i),
                  config_.layers[i]);
        return std::move(all_);
    }

  private:
    const std::string& name(const char* ours) const { return config_.names.at(ours); }
    std::string in(const std::string& path, const char* ours) const {
        return fmt::format("{}.{}", path, name(ours));
    }

    GgufWeight& add(const std::string& tensor, const std::string& path,
                    std::vector<int64_t> sizes) {
        all_.push_back({tensor + ".weight", {path + ".weight"}, std::move(sizes)});
        return all_.back();
    }
    GgufWeight& bias(const std::string& tensor, const std::string& path, int64_t numel) {
        all_.push_back({tensor + ".bias", {path + ".bias"}, {numel}});
        return all_.back();
    }

    [[nodiscard]] GgufChange norm_change() const {
        const bool of_one =
            config_.norm == NormKind::kRmsOfOne || config_.norm == NormKind::kLayerOfOne;
        return of_one ? GgufChange::kAddOne : GgufChange::kNone;
    }

    void norm(const std::string& tensor, const std::string& path) {
        if (config_.has_norm_weight) add(tensor, path, {config_.width}).change = norm_change();
        if (config_.has_norm_bias) bias(tensor, path, config_.width);
    }

    // Adds a norm of the TOTAL heads of queries or keys.
    void head_norm(const std::string& tensor, const std::string& path, int64_t total) {
        const int64_t width = config_.head_width;
        const bool has_bias = config_.has_head_norm_bias;
        switch (config_.head_norm) {
            case HeadNormKind::kNone:
                return;
            case HeadNormKind::kShared:
                add(tensor, path, {width}).change = norm_change();
                if (has_bias) bias(tensor, path, width);
                return;
            case HeadNormKind::kEach:
                add(tensor, path, {total, width}).change = norm_change();
                return;
            case HeadNormKind::kWhole:
                add(tensor, path, {total * width}).change = norm_change();
                return;
            case HeadNormKind::kList:
                break;
        }
        GgufWeight list{tensor + ".weight", {}, {width}};
        for (int64_t i = 0; i < total; ++i)
            list.names.push_back(fmt::format("{}.{}.weight", in(path, "norms"), i));
        all_.push_back(std::move(list));
    }

    // Adds a matrix of a layer.
    GgufWeight& matrix(const std::string& tensor, const std::string& path, int64_t out,
                       int64_t in_) {
        if (!config_.is_transposed) return add(tensor, path, {out, in_});
        GgufWeight& weight = add(tensor, path, {in_, out});
        weight.change = GgufChange::kTranspose;
        return weight;
    }

    void projection(const std::string& tensor, const std::string& path, int64_t heads, bool turns) {
        const bool changes = turns && family_.turns_neighbours && !config_.turns_neighbours;
        const int64_t out = heads * config_.head_width;
        const auto turn = [&](GgufWeight& weight) {
            if (!changes) return;
            weight.change = GgufChange::kTurn;
            weight.heads = heads;
        };
        turn(matrix(tensor, path, out, config_.width));
        if (config_.has_projection_bias) turn(bias(tensor, path, out));
    }

    void attention(const std::string& to, const std::string& path) {
        const int64_t queries = config_.heads * config_.head_width;
        if (config_.projection == ProjectionKind::kSeparate) {
            projection(to + "attn_q", in(path, "query"), config_.heads, true);
            projection(to + "attn_k", in(path, "key"), config_.key_heads, true);
            projection(to + "attn_v", in(path, "value"), config_.key_heads, false);
        } else {
            const int64_t out = queries + 2 * config_.key_heads * config_.head_width;
            const auto gather = [&](GgufWeight& weight) {
                if (config_.projection != ProjectionKind::kFusedByKey) return;
                weight.change = GgufChange::kByKey;
                weight.heads = config_.heads;
                weight.key_heads = config_.key_heads;
            };
            gather(matrix(to + "attn_qkv", in(path, "fused"), out, config_.width));
            if (config_.has_projection_bias) gather(bias(to + "attn_qkv", in(path, "fused"), out));
        }
        head_norm(to + "attn_q_norm", in(path, "query_norm"), config_.heads);
        head_norm(to + "attn_k_norm", in(path, "key_norm"), config_.key_heads);
        matrix(to + "attn_output", in(path, "output"), config_.width, queries);
        if (config_.has_output_bias) bias(to + "attn_output", in(path, "output"), config_.width);
    }

    void mlp(const std::string& to, const std::string& path) {
        const int64_t width = config_.mlp_width;
        const auto one = [&](const char* tensor, const char* ours, int64_t out, int64_t in_) {
            matrix(to + tensor, in(path, ours), out, in_);
            if (config_.has_mlp_bias) bias(to + tensor, in(path, ours), out);
        };
        if (config_.is_gate_fused) {
            one("ffn_up", "gate_up", 2 * width, config_.width);
        } else {
            if (config_.is_gated) one("ffn_gate", "gate", width, config_.width);
            one("ffn_up", "up", width, config_.width);
        }
        one("ffn_down", "down", config_.width, width);
    }

    void experts(const std::string& to, const std::string& path) {
        add(to + "ffn_gate_inp", in(path, "router"), {config_.experts, config_.width});
        const auto stack = [&](const char* tensor, const char* ours, int64_t out, int64_t in_) {
            GgufWeight all{to + tensor + std::string("_exps.weight"), {}, {out, in_}};
            for (int64_t i = 0; i < config_.experts; ++i)
                all.names.push_back(
                    fmt::format("{}.{}.{}.weight", in(path, "experts"), i, name(ours)));
            all_.push_back(std::move(all));
        };
        stack("ffn_gate", "gate", config_.expert_width, config_.width);
        stack("ffn_up", "up", config_.expert_width, config_.width);
        stack("ffn_down", "down", config_.width, config_.expert_width);
        if (config_.shared_expert_width == 0) return;
        const std::string shared = in(path, "shared_expert");
        const int64_t width = config_.shared_expert_width;
        add(to + "ffn_gate_shexp", in(shared, "gate"), {width, config_.width});
        add(to + "ffn_up_shexp", in(shared, "up"), {width, config_.width});
        add(to + "ffn_down_shexp", in(shared, "down"), {config_.width, width});
        if (config_.has_shared_expert_gate) {
            add(to + "ffn_gate_inp_shexp", in(path, "shared_expert_gate"), {1, config_.width});
        }
    }

    void layer(const std::string& to, const std::string& path, const TransformerLayer& what) {
        const std::string family = family_.name;
        // Falcon has two norms only in its later form. llama.cpp names the attention's norm
        // attn_norm_2 then, and the MLP's norm attn_norm.
        const bool swaps = family == "falcon" && !config_.has_shared_norm;
        if (config_.has_norms_before) {
            norm(to + (swaps && config_.is_parallel ? "attn_norm_2" : "attn_norm"),
                 in(path, "attention_norm"));
            if (!config_.has_shared_norm)
                norm(to + (swaps && config_.is_parallel ? "attn_norm"
                           : family == "seed_oss"       ? "post_attention_norm"
                                                        : "ffn_norm"),
                     in(path, "mlp_norm"));
        }
        attention(to, in(path, "attention"));
        if (config_.has_norms_after) {
            norm(to + "post_attention_norm", in(path, "attention_post_norm"));
            norm(to + "post_ffw_norm", in(path, "mlp_post_norm"));
        }
        if (what.has_experts) {
            experts(to, in(path, "mlp"));
        } else {
            mlp(to, in(path, "mlp"));
        }
    }

    const TransformerConfig& config_;
    const GgufFamily& family_;
    std::vector<GgufWeight> all_;
};

// Returns, for each row in the file, its row in the modules.
std::vector<int64_t> row_order(const GgufWeight& weight) {
    const int64_t rows = weight.sizes.front();
    std::vector<int64_t> order;
    if (weight.change == GgufChange::kTurn) {
        const int64_t width = rows / weight.heads, half = width / 2;
        for (int64_t head = 0; head < weight.heads; ++head)
            for (int64_t i = 0; i < width; ++i)
                order.push_back(head * width + i / 2 + i % 2 * half);
        return order;
    }
    const int64_t queries = weight.heads / weight.key_heads;  // queries that share a key
    const int64_t width = rows / (weight.heads + 2 * weight.key_heads);
    const auto gather = [&](int64_t first, int64_t heads) {
        for (int64_t key = 0; key < weight.key_heads; ++key)
            for (int64_t i = 0; i < heads * width; ++i)
                order.push_back((key * (queries + 2) + first) * width + i);
    };
    gather(0, queries);
    gather(queries, 1);
    gather(queries + 1, 1);
    return order;
}

// Moves whole rows from the modules' order to the file's order if TO_FILE, else back.
void move_rows(const GgufWeight& weight, bool to_file, std::vector<float>& numbers) {
    const std::vector<int64_t> order = row_order(weight);
    const auto columns = std::ssize(numbers) / weight.sizes.front();
    std::vector<float> moved(numbers.size());
    for (int64_t row = 0; row < std::ssize(order); ++row) {
        const int64_t other = order[static_cast<size_t>(row)];
        const int64_t from = to_file ? other : row, to = to_file ? row : other;
        std::copy_n(numbers.data() + from * columns, columns, moved.data() + to * columns);
    }
    numbers = std::move(moved);
}

void transpose(int64_t rows, int64_t columns, std::vector<float>& numbers) {
    std::vector<float> turned(numbers.size());
    for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < columns; ++c)
            turned[static_cast<size_t>(c * rows + r)] =
                numbers[static_cast<size_t>(r * columns + c)];
    numbers = std::move(turned);
}

}  // namespace

namespace {

// Returns the sizes without dimensions of 1 at the beginning.
std::span<const int64_t> without_ones(const std::vector<int64_t>& sizes) {
    size_t first = 0;
    while (first < sizes.size() && sizes[first] == 1) ++first;
    return std::span(sizes).subspan(first);
}

// Returns true for a tensor that becomes a field of config.json.
bool is_of_config(std::string_view tensor) {
    return tensor == "rope_freqs.weight" || tensor.starts_with("rope_factors_");
}

}  // namespace

std::vector<GgufModuleWeight> weights_in_gguf(const std::shared_ptr<const GgufFile>& file,
                                              const TransformerConfig& config) {
    const std::string& path = file->metadata().path();
    std::vector<GgufModuleWeight> all;
    std::set<std::string, std::less<>> known;
    const auto numbers_of = [](const GgufTensor& tensor, size_t part, size_t parts) {
        const size_t bytes = tensor.bytes.size() / parts;
        std::vector<float> numbers(static_cast<size_t>(std::ssize(tensor.bytes)) /
                                   static_cast<size_t>(facts_of(tensor.form).bytes) *
                                   static_cast<size_t>(facts_of(tensor.form).numel) / parts);
        gguf_dequantize(tensor.form, tensor.bytes.subspan(part * bytes, bytes), numbers);
        return numbers;
    };
    for (const GgufWeight& weight : gguf_weights(config, gguf_family_of(config, path))) {
        const GgufTensor* const tensor = file->content().find(weight.tensor);
        if (tensor == nullptr) continue;  // the module that needs it reports this
        known.insert(weight.tensor);
        const std::vector<int64_t> sizes = weight.file_sizes();
        if (!std::ranges::equal(without_ones(tensor->shape), without_ones(sizes)))
            fail(ExitCode::kInput,
                 "{}: tensor `{}` has shape {}, but by the file's values it must have {}",
                 printable(path), printable(weight.tensor), shape_text(tensor->shape),
                 shape_text(sizes));
        const auto shared = std::make_shared<const GgufWeight>(weight);  // its readers share it
        for (size_t i = 0; i < weight.names.size(); ++i)
            all.push_back({weight.names[i], weight.sizes, tensor->form == GgufForm::kF32,
                           [file, tensor, shared, i, numbers_of] {
                               std::vector<float> numbers =
                                   numbers_of(*tensor, i, shared->names.size());
                               change_from_gguf(*shared, numbers);
                               return numbers;
                           }});
    }
    for (const GgufTensor& tensor : file->content().tensors)
        if (!known.contains(tensor.name) && !is_of_config(tensor.name))
            all.push_back({tensor.name, tensor.shape, false,
                           [file, &tensor, numbers_of] { return numbers_of(tensor, 0, 1); }});
    return all;
}

std::span<const GgufFamily> gguf_families() {
    return kFamilies;
}

const GgufFamily& gguf_family_of(const TransformerConfig& config, const std::string& place) {
    const auto* const found = std::ranges::find_if(kFamilies, [&](const GgufFamily& family) {
        return family.architecture == config.architecture;
    });
    if (found == std::end(kFamilies))
        fail(ExitCode::kInput, "{}: llama.cpp has no {}, so this model cannot be written as GGUF",
             printable(place), printable(config.architecture));
    return *found;
}

std::vector<int64_t> GgufWeight::file_sizes() const {
    std::vector<int64_t> all = sizes;
    if (change == GgufChange::kTranspose) std::ranges::reverse(all);
    if (names.size() > 1) all.insert(all.begin(), std::ssize(names));
    return all;
}

std::vector<GgufWeight> gguf_weights(const TransformerConfig& config, const GgufFamily& family) {
    return Lister(config, family).list();
}

void change_for_gguf(const GgufWeight& weight, std::vector<float>& numbers) {
    switch (weight.change) {
        case GgufChange::kNone:
            return;
        case GgufChange::kAddOne:
            for (float& number : numbers) number += 1;
            return;
        case GgufChange::kTranspose:
            transpose(weight.sizes[0], weight.sizes[1], numbers);
            return;
        case GgufChange::kTurn:
        case GgufChange::kByKey:
            move_rows(weight, /*to_file=*/true, numbers);
            return;
    }
}

void change_from_gguf(const GgufWeight& weight, std::vector<float>& numbers) {
    switch (weight.change) {
        case GgufChange::kNone:
            return;
        case GgufChange::kAddOne:
            for (float& number : numbers) number -= 1;
            return;
        case GgufChange::kTranspose:
            transpose(weight.sizes[1], weight.sizes[0], numbers);
            return;
        case GgufChange::kTurn:
        case GgufChange::kByKey:
            move_rows(weight, /*to_file=*/false, numbers);
            return;
    }
}

}  // namespace dslaunch::storage
