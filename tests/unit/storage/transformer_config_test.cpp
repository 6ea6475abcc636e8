// Hugging Face's config.json: the fields that are read of each family, and the fields for which it
// is refused. tests/unit/graph/huggingface_folder_test tests that the numbers mean the same as in
// transformers.
#include "storage/huggingface/transformer_config.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "storage/huggingface/model_folder.h"
#include "storage/huggingface/text_part.h"
#include "support/catch.h"
#include "support/temporary_folder.h"
#include "support/text_tools.h"

namespace dslaunch::storage {
namespace {

using Json = nlohmann::json;
using Catch::Contains;

Json llama() {
    return {{"architectures", {"LlamaForCausalLM"}},
            {"vocab_size", 100},
            {"hidden_size", 32},
            {"intermediate_size", 64},
            {"num_hidden_layers", 4},
            {"num_attention_heads", 4},
            {"num_key_value_heads", 2}};
}

Json with(Json config, const std::string& key, const Json& value) {
    config[key] = value;
    return config;
}

Json as(const std::string& architecture) {
    Json config = llama();
    config["architectures"] = Json::array({architecture});
    return config;
}

TransformerConfig read(const Json& config) {
    return parse_transformer_config("config.json", config.dump());
}

std::string refusal(const Json& config) {
    return test::error_of(ExitCode::kInput, [&] { static_cast<void>(read(config)); });
}

std::string windows(const TransformerConfig& config) {
    std::string text;
    for (const TransformerLayer& layer : config.layers) text += layer.has_window ? 'w' : '-';
    return text;
}

TEST_CASE("the sizes of a config.json and the defaults of its family") {
    const TransformerConfig config = read(llama());
    CHECK(config.architecture == "LlamaForCausalLM");
    CHECK(config.vocabulary == 100);
    CHECK(config.head_width == 8);
    CHECK(config.key_heads == 2);
    CHECK(config.context == 2048);
    CHECK(config.scale == Approx(1 / std::sqrt(8.0)));
    CHECK_FALSE(config.is_tied);
    CHECK(config.padding == -1);
    CHECK(config.dtype == DType::kF32);
    CHECK(config.rope.theta == 10000);
    CHECK(config.rope.width == 8);
    CHECK(config.names.at("query") == "q_proj");
    CHECK(windows(config) == "----");
}

TEST_CASE("the model type names a family where no architecture is named") {
    Json config = llama();
    config.erase("architectures");
    config["model_type"] = "qwen2";
    CHECK(read(config).architecture == "Qwen2ForCausalLM");
    config.erase("model_type");
    CHECK_THAT(refusal(config), Contains("neither architectures nor model_type"));
}

TEST_CASE("null is as good as nothing, but for a cap that it takes away") {
    CHECK(read(with(llama(), "num_key_value_heads", nullptr)).key_heads == 4);
    CHECK(read(with(llama(), "rope_scaling", nullptr)).rope.kind == RopeKind::kDefault);
    const Json gemma = as("Gemma2ForCausalLM");
    const Json whole = with(gemma, "sliding_window", 16);
    CHECK(read(whole).score_cap == 50);
    CHECK(read(whole).logit_cap == 30);
    CHECK(read(with(whole, "attn_logit_softcapping", nullptr)).score_cap == 0);
    CHECK(read(whole).padding == 0);
    CHECK(read(with(whole, "pad_token_id", nullptr)).padding == -1);
    CHECK(read(whole).is_tied);
}

// Returns a config as Gemma 3 was published: text_config has fields that its class does not have.
Json gemma3_with_images() {
    return {{"architectures", {"Gemma3ForConditionalGeneration"}},
            {"model_type", "gemma3"},
            {"eos_token_id", {1, 106}},
            {"text_config",
             {{"hidden_size", 2560},
              {"intermediate_size", 10240},
              {"model_type", "gemma3_text"},
              {"num_hidden_layers", 34},
              {"rope_scaling", {{"factor", 8.0}, {"rope_type", "linear"}}},
              {"sliding_window", 1024}}},
            {"torch_dtype", "bfloat16"},
            {"vision_config", {{"hidden_size", 1152}}}};
}

TEST_CASE("of a model of texts and images the text part is read") {
    const TransformerConfig gemma = read(gemma3_with_images());
    CHECK(gemma.architecture == "Gemma3ForCausalLM");
    CHECK(gemma.outer == "Gemma3ForConditionalGeneration");
    CHECK(gemma.vocabulary == 262208);
    CHECK(gemma.heads == 8);
    CHECK(gemma.key_heads == 4);
    CHECK(gemma.head_width == 256);
    CHECK(gemma.context == 131072);
    CHECK(gemma.window == 1024);
    CHECK(gemma.rope.factor == 8);
    CHECK(gemma.rope.theta == 1e6);
    CHECK(gemma.window_rope.theta == 1e4);
    CHECK(gemma.is_tied);
    CHECK(gemma.dtype == DType::kBF16);
    Json mistral = {{"architectures", {"Mistral3ForConditionalGeneration"}},
                    {"text_config", with(llama(), "model_type", "mistral")}};
    mistral["text_config"].erase("architectures");
    CHECK(read(mistral).is_tied);
    CHECK(windows(read(mistral)) == "wwww");  // of 4096, as its class says
    mistral["text_config"]["sliding_window"] = nullptr;
    mistral["tie_word_embeddings"] = false;
    CHECK_FALSE(read(mistral).is_tied);
    CHECK(windows(read(mistral)) == "----");
    // Qwen 2 VL has its text's numbers outside of text_config.
    Json qwen = with(as("Qwen2VLForConditionalGeneration"), "vision_config", Json::object());
    qwen["rope_scaling"] = {{"type", "mrope"}, {"mrope_section", {16, 24, 24}}};
    CHECK(read(qwen).architecture == "Qwen2ForCausalLM");
    CHECK(read(qwen).rope.kind == RopeKind::kDefault);
    CHECK(read(qwen).rope.theta == 1e6);
    CHECK(read(qwen).norm_epsilon == 1e-5);
    CHECK_FALSE(read(qwen).is_tied);
    // LLaVA is tied if its text model is.
    Json llava = {{"architectures", {"LlavaForConditionalGeneration"}},
                  {"text_config", with(llama(), "tie_word_embeddings", true)}};
    CHECK(read(llava).is_tied);
    CHECK(read(llava).architecture == "LlamaForCausalLM");
    llava["text_config"]["model_type"] = "ministral3";
    CHECK_THAT(
        refusal(llava),
        Contains("config.json: text_config: the architecture `ministral3` is not supported"));
    llava["text_config"]["model_type"] = "cohere2";
    CHECK_THAT(refusal(with(llava, "text_config", with(llava["text_config"], "sliding_window", 8))),
               Contains("its text model scales or caps the logits"));
    CHECK_THAT(refusal(as("PaliGemmaForConditionalGeneration")), Contains("is not supported"));
}

TEST_CASE("weights of images are left out, and others have their names in the text model") {
    const auto name = [](const char* of_whole) {
        return name_in_text_model(of_whole, "model").value_or("none");
    };
    CHECK(name("language_model.model.layers.0.mlp.up_proj.weight") ==
          "model.layers.0.mlp.up_proj.weight");
    CHECK(name("model.language_model.norm.weight") == "model.norm.weight");
    CHECK(name("model.text_model.norm.weight") == "model.norm.weight");
    CHECK(name("model.norm.weight") == "model.norm.weight");
    CHECK(name("language_model.lm_head.weight") == "lm_head.weight");
    CHECK(name("lm_head.weight") == "lm_head.weight");
    for (const char* other :
         {"vision_tower.vision_model.post_layernorm.weight", "model.vision_tower.norm.weight",
          "visual.patch_embed.proj.weight", "model.visual.merger.ln_q.weight",
          "multi_modal_projector.linear_1.weight",
          "model.connector.modality_projection.proj.weight",
          "model.vision_model.embeddings.position_embedding.weight", "model.image_newline"})
        CHECK(name(other) == "none");
    CHECK(name("model.lora.weight") == "model.lora.weight");
}

TEST_CASE("sizes of GPT-2 have its own names or those of others") {
    const Json own = {{"model_type", "gpt2"}, {"vocab_size", 100}, {"n_embd", 32},
                      {"n_head", 4},          {"n_layer", 3},      {"n_positions", 64}};
    const Json common = {{"model_type", "gpt2"},   {"vocab_size", 100},
                         {"hidden_size", 32},      {"num_attention_heads", 4},
                         {"num_hidden_layers", 3}, {"max_position_embeddings", 64}};
    for (const Json& config : {own, common}) {
        CHECK(read(config).width == 32);
        CHECK(read(config).heads == 4);
        CHECK(read(config).layers.size() == 3);
        CHECK(read(config).context == 64);
    }
}

TEST_CASE("what a config class sets counts where config.json is silent") {
    const Json mistral = as("MistralForCausalLM");
    CHECK(read(mistral).window == 4096);
    CHECK(read(mistral).context == 131072);
    CHECK(read(as("Qwen2ForCausalLM")).context == 32768);
    CHECK(read(with(mistral, "max_position_embeddings", 64)).context == 64);
}

TEST_CASE("settings of bitsandbytes that ask for nothing are left over, others are refused") {
    const auto with_settings = [](const Json& settings) {
        return with(llama(), "quantization_config", settings);
    };
    CHECK(read(with_settings(Json::object())).vocabulary == 100);
    CHECK(read(with_settings(nullptr)).vocabulary == 100);
    CHECK(read(with_settings({{"quant_method", "bitsandbytes"}, {"load_in_4bit", false}}))
              .vocabulary == 100);
    for (const Json& settings : {Json{{"quant_method", "bitsandbytes"}, {"load_in_4bit", true}},
                                 Json{{"quant_method", "aqlm"}, {"bits", 2}}})
        CHECK_THAT(refusal(with_settings(settings)), Contains("weights are quantized"));
    // The settings of rounded weights are read (storage/quantized).
    CHECK(read(with_settings({{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 32}}))
              .quantization->schemes.front()
              .group == 32);
}

TEST_CASE("rope types dynamic and proportional") {
    const auto with_rope = [](const Json& rope) { return with(llama(), "rope_parameters", rope); };
    const Rope rope =
        read(with(with_rope({{"type", "dynamic"}, {"factor", 4.0}}), "max_position_embeddings", 16))
            .rope;
    CHECK(rope.kind == RopeKind::kDynamic);
    CHECK(rope.original_context == 16);
    // Within the first context its pairs turn as without a rope type.
    CHECK(dynamic_frequencies(rope, 3)[1] == Approx(std::pow(1e4, -0.25)));
    CHECK(dynamic_frequencies(rope, 16) == dynamic_frequencies(rope, 3));
    // Twice the length, by the formula: a base of theta * (4 * 2 - 3)^(8 / 6).
    CHECK(dynamic_frequencies(rope, 32)[1] ==
          Approx(std::pow(1e4 * std::pow(5.0, 8.0 / 6), -0.25)));
    const Json proportional = {
        {"rope_type", "proportional"}, {"factor", 2.0}, {"partial_rotary_factor", 0.5}};
    CHECK(read(with_rope(proportional)).rope.width == 8);
    CHECK(read(with_rope(proportional)).rope.turning_pairs == 2);
    CHECK_THAT(refusal(with(as("PhiForCausalLM"), "rope_parameters", proportional)),
               Contains("is only for model families that rotate whole heads"));
    CHECK_THAT(refusal(with(with_rope({{"type", "dynamic"}}), "head_dim", 2)),
               Contains("more than one rotated pair"));
    Json gemma = with(as("Gemma3ForCausalLM"), "sliding_window", 16);
    gemma["rope_parameters"] = {{"full_attention", {{"rope_type", "dynamic"}, {"factor", 2.0}}}};
    CHECK_THAT(refusal(gemma), Contains("the rope type `dynamic` is not supported"));
}

TEST_CASE("windows are those of layer_types, or else of the family") {
    const Json mistral = with(as("MistralForCausalLM"), "sliding_window", 16);
    CHECK(windows(read(mistral)) == "wwww");
    CHECK(windows(read(with(mistral, "sliding_window", nullptr))) == "----");
    Json qwen = with(as("Qwen2ForCausalLM"), "sliding_window", 16);
    CHECK(windows(read(qwen)) == "----");
    qwen["use_sliding_window"] = true;
    CHECK(windows(read(qwen)) == "----");  // from layer 28 on
    qwen["max_window_layers"] = 3;
    CHECK(windows(read(qwen)) == "---w");
    qwen["layer_types"] = {"full_attention", "sliding_attention", "full_attention",
                           "sliding_attention"};
    CHECK(windows(read(qwen)) == "-w-w");
    const Json gemma = with(as("Gemma2ForCausalLM"), "sliding_window", 16);
    CHECK(windows(read(gemma)) == "w-w-");
    Json gemma3 = with(as("Gemma3ForCausalLM"), "sliding_window", 16);
    CHECK(windows(read(gemma3)) == "wwww");
    gemma3["sliding_window_pattern"] = 2;
    CHECK(windows(read(gemma3)) == "w-w-");
}

TEST_CASE("rope's numbers stand in rope_parameters, or in the keys of before") {
    Json newer = llama();
    newer["rope_parameters"] = {{"rope_type", "linear"}, {"factor", 4.0}, {"rope_theta", 5e5}};
    Json older = llama();
    older["rope_scaling"] = {{"type", "linear"}, {"factor", 4.0}};
    older["rope_theta"] = 5e5;
    for (const Json& config : {newer, older}) {
        const Rope rope = read(config).rope;
        CHECK(rope.kind == RopeKind::kLinear);
        CHECK(rope.factor == 4);
        CHECK(rope.theta == 5e5);
    }
    Json yarn = llama();
    yarn["rope_parameters"] = {
        {"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 512}};
    CHECK(read(yarn).rope.magnitude == Approx(0.1 * std::log(4.0) + 1));
    // The number outside counts, as in transformers, if one formula is used for all layers.
    CHECK(read(with(yarn, "original_max_position_embeddings", 128)).rope.original_context == 128);
    Json neox = as("GPTNeoXForCausalLM");
    CHECK(read(neox).rope.width == 2);  // a quarter
    neox["rotary_pct"] = 1.0;
    CHECK(read(neox).rope.width == 8);
}

TEST_CASE("a share of a head turns in the families alone that have one") {
    const auto share = [](double part) { return Json{{"partial_rotary_factor", part}}; };
    Json phi3 = as("Phi3ForCausalLM");
    CHECK(read(with(phi3, "partial_rotary_factor", 0.5)).rope.width == 4);
    CHECK(read(with(phi3, "rope_parameters", share(0.5))).rope.width == 4);
    CHECK(read(with(as("PhiForCausalLM"), "rope_parameters", share(1))).rope.width == 8);
    for (const double part : {1.5, 1e300, 0.0, -0.5})
        CHECK_THAT(refusal(with(phi3, "rope_parameters", share(part))),
                   Contains("rope_parameters.partial_rotary_factor: must be above 0"));
    for (const char* family : {"LlamaForCausalLM", "Qwen3ForCausalLM", "GemmaForCausalLM"}) {
        CHECK(read(with(as(family), "rope_parameters", share(1))).rope.width ==
              read(as(family)).head_width);
        for (const Json& config : {with(as(family), "rope_parameters", share(0.25)),
                                   with(as(family), "rope_scaling", share(0.25)),
                                   with(as(family), "partial_rotary_factor", 0.25)})
            CHECK_THAT(refusal(config),
                       Contains("partial_rotary_factor: this model family rotates whole heads"));
    }
    CHECK_THAT(refusal(with(as("GPTNeoXForCausalLM"), "rotary_pct", 2)),
               Contains("rotary_pct: must be above 0 and at most 1"));
    const Json nowhere = {{"rope_type", "longrope"},
                          {"original_max_position_embeddings", 1},
                          {"short_factor", {1, 1, 1, 1}},
                          {"long_factor", {1, 1, 1, 1}},
                          {"factor", 4}};
    CHECK_THAT(refusal(with(phi3, "rope_scaling", nowhere)), Contains("infinite or NaN"));
}

TEST_CASE("kinds of layers turn the same share of a head, each by its formula") {
    for (const char* family : {"Gemma3ForCausalLM", "Olmo3ForCausalLM"}) {
        Json config = with(as(family), "sliding_window", 16);
        config["rope_parameters"] = {
            {"full_attention", {{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 5e5}}},
            {"sliding_attention", {{"rope_theta", 100.0}}}};
        const TransformerConfig read_well = read(config);
        CHECK(read_well.rope.factor == 8);
        CHECK(read_well.window_rope.theta == 100);
        CHECK(read_well.rope.width == read_well.window_rope.width);
        for (const char* kind : {"full_attention", "sliding_attention"}) {
            Json other = config;
            other["rope_parameters"][kind]["partial_rotary_factor"] = 0.25;
            CHECK_THAT(refusal(other), Contains(kind) && Contains("rotates whole heads"));
            other = config;
            other["rope_parameters"][kind] = {{"rope_type", "longrope"},
                                              {"original_max_position_embeddings", 64},
                                              {"short_factor", std::vector<double>(4, 1.0)},
                                              {"long_factor", std::vector<double>(4, 2.0)}};
            other["head_dim"] = 8;
            CHECK_THAT(refusal(other), Contains("longrope"));
        }
        CHECK_THAT(refusal(with(config, "rope_scaling", {{"type", "linear"}, {"factor", 2}})),
                   Contains("rope_parameters is also given"));
        // If one formula is used for all layers, numbers for one kind of layers would be ignored.
        config["architectures"] = {"MistralForCausalLM"};
        CHECK_THAT(refusal(config),
                   Contains("rope_parameters: `full_attention` has its own settings"));
    }
}

TEST_CASE("experts are in the layers that the config says") {
    Json config = as("Qwen3MoeForCausalLM");
    config["num_experts"] = 8;
    config["num_experts_per_tok"] = 2;
    config["moe_intermediate_size"] = 16;
    config["decoder_sparse_step"] = 2;
    config["mlp_only_layers"] = {3};
    std::string layers;
    for (const TransformerLayer& layer : read(config).layers)
        layers += layer.has_experts ? 'e' : '-';
    CHECK(layers == "-e--");
    CHECK_THAT(refusal(with(config, "num_experts_per_tok", 9)),
               Contains("9 experts are to be chosen for a token, but there are only 8"));
    CHECK_THAT(refusal(with(config, "output_router_logits", true)),
               Contains("output_router_logits"));
}

TEST_CASE("norms stand where the family has them, and are of its kind") {
    const TransformerConfig olmo = read(as("OlmoForCausalLM"));
    CHECK_FALSE(olmo.has_norm_weight);
    CHECK(olmo.norm == NormKind::kLayer);
    CHECK(olmo.projection_cap == 0);
    CHECK(read(with(as("OlmoForCausalLM"), "clip_qkv", 8.0)).projection_cap == 8);
    const TransformerConfig olmo2 = read(as("Olmo2ForCausalLM"));
    CHECK_FALSE(olmo2.has_norms_before);
    CHECK(olmo2.has_norms_after);
    CHECK(olmo2.head_norm == HeadNormKind::kWhole);
    CHECK(olmo2.names.at("attention_post_norm") == "post_attention_layernorm");
    const Json cohere = as("CohereForCausalLM");
    CHECK(read(cohere).has_shared_norm);
    CHECK_FALSE(read(cohere).has_norm_bias);
    CHECK(read(cohere).logit_scale == 0.0625);
    CHECK(read(cohere).head_norm == HeadNormKind::kNone);
    CHECK(read(with(cohere, "use_qk_norm", true)).head_norm == HeadNormKind::kEach);
    const Json stablelm = as("StableLmForCausalLM");
    CHECK_FALSE(read(stablelm).is_parallel);
    CHECK(read(with(stablelm, "use_parallel_residual", true)).has_shared_norm);
    CHECK(read(with(stablelm, "qk_layernorm", true)).head_norm == HeadNormKind::kList);
    const TransformerConfig phi = read(with(as("PhiForCausalLM"), "qk_layernorm", true));
    CHECK(phi.head_norm == HeadNormKind::kShared);
    CHECK(phi.has_head_norm_bias);
    CHECK(phi.has_head_bias);
    CHECK(read(as("NemotronForCausalLM")).norm == NormKind::kLayerOfOne);
}

TEST_CASE("layers turn but for those of which the config says otherwise") {
    const auto turns = [](const Json& config) {
        std::string text;
        for (const TransformerLayer& layer : read(config).layers) text += layer.turns ? 't' : '-';
        return text;
    };
    Json smol = as("SmolLM3ForCausalLM");
    CHECK(turns(smol) == "ttt-");
    CHECK(turns(with(smol, "no_rope_layer_interval", 2)) == "t-t-");
    smol["no_rope_layers"] = {0, 1, 1, 0, 1};
    CHECK(turns(smol) == "-tt-");
    CHECK_THAT(refusal(with(smol, "no_rope_layers", {1, 0})), Contains("fewer numbers than"));
    smol["use_sliding_window"] = true;
    smol["sliding_window"] = 16;
    CHECK(windows(read(smol)) == "w--w");
    const Json cohere = with(as("Cohere2ForCausalLM"), "sliding_window", 16);
    CHECK(windows(read(cohere)) == "www-");
    CHECK(turns(cohere) == "ttt-");
    CHECK(turns(llama()) == "tttt");
    for (const auto& [family, width] :
         {std::pair{"PhiForCausalLM", 4}, std::pair{"StableLmForCausalLM", 2},
          std::pair{"NemotronForCausalLM", 4}})
        CHECK(read(as(family)).rope.width == width);
    for (const char* family :
         {"CohereForCausalLM", "GlmForCausalLM", "HeliumForCausalLM", "Ernie4_5ForCausalLM"})
        CHECK(read(as(family)).turns_neighbours);
}

TEST_CASE("factors of Granite, and the shared expert of Qwen 2") {
    Json granite = as("GraniteForCausalLM");
    CHECK(read(granite).scale == 1);
    granite["attention_multiplier"] = 0.5;
    granite["embedding_multiplier"] = 12;
    granite["residual_multiplier"] = 0.25;
    granite["logits_scaling"] = 8;
    const TransformerConfig model = read(granite);
    CHECK(model.scale == 0.5);
    CHECK(model.embedding_scale == 12);
    CHECK(model.residual_scale == 0.25);
    CHECK(model.logit_scale == 0.125);
    Json qwen = as("Qwen2MoeForCausalLM");
    qwen["num_experts"] = 8;
    qwen["num_experts_per_tok"] = 2;
    qwen["moe_intermediate_size"] = 16;
    qwen["shared_expert_intermediate_size"] = 48;
    CHECK(read(qwen).shared_expert_width == 48);
    CHECK(read(qwen).has_shared_expert_gate);
    CHECK(read(qwen).has_projection_bias);
    CHECK_FALSE(read(with(qwen, "qkv_bias", false)).has_projection_bias);
    qwen["use_sliding_window"] = true;
    qwen["sliding_window"] = 16;
    qwen["max_window_layers"] = 2;
    CHECK(windows(read(qwen)) == "w---");
}

TEST_CASE("Falcon's old and new layers, StarCoder's one key, GPT-J's width that turns") {
    Json falcon = as("FalconForCausalLM");
    CHECK(read(falcon).key_heads == 1);
    CHECK(read(falcon).projection == ProjectionKind::kFused);
    CHECK(read(falcon).has_shared_norm);
    CHECK(read(falcon).mlp_width == 128);
    CHECK(read(with(falcon, "multi_query", false)).key_heads == 4);
    CHECK_THAT(refusal(with(falcon, "alibi", true)),
               Contains("alibi: ALiBi (a bias of attention scores"));
    CHECK_THAT(refusal(with(falcon, "hidden_dropout", 0.1)), Contains("hidden_dropout"));
    falcon["new_decoder_architecture"] = true;
    falcon["num_kv_heads"] = 2;
    CHECK(read(falcon).key_heads == 2);
    CHECK(read(falcon).projection == ProjectionKind::kFusedByKey);
    CHECK(read(falcon).names.at("mlp_norm") == "ln_mlp");
    CHECK_FALSE(read(falcon).has_shared_norm);
    CHECK(read(with(falcon, "num_ln_in_parallel_attn", 1)).has_shared_norm);
    CHECK_THAT(refusal(with(falcon, "parallel_attn", false)), Contains("parallel_attn"));
    const Json gpt = {{"vocab_size", 100}, {"n_embd", 32},      {"n_head", 4},
                      {"n_layer", 2},      {"n_positions", 64}, {"rotary_dim", 4}};
    const Json coder = with(gpt, "architectures", {"GPTBigCodeForCausalLM"});
    CHECK(read(coder).key_heads == 1);
    CHECK_FALSE(read(coder).has_rotary());
    CHECK(read(with(coder, "multi_query", false)).projection == ProjectionKind::kFusedByKey);
    const Json gptj = with(gpt, "architectures", {"GPTJForCausalLM"});
    CHECK(read(gptj).rope.width == 4);
    CHECK(read(gptj).has_head_bias);
    CHECK_THAT(refusal(with(gptj, "rotary_dim", 10)), Contains("rotary_dim: must be even"));
    CHECK_THAT(refusal(with(gptj, "rotary_dim", nullptr)), Contains("rotary_dim"));
}

TEST_CASE("enormous sizes are refused before anything is made of them") {
    const int64_t most = int64_t{1} << 29;
    const auto all = [&](std::initializer_list<const char*> keys) {
        Json config = llama();
        for (const char* key : keys) config[key] = most;
        return config;
    };
    CHECK(read(all({"max_position_embeddings"})).context == most);
    CHECK(read(with(llama(), "vocab_size", 1 << 24)).vocabulary == 1 << 24);
    CHECK_THAT(refusal(all({"vocab_size"})), Contains("536870912 tokens in the vocabulary, but"));
    CHECK_THAT(refusal(all({"head_dim"})),
               Contains("536870912 elements in a head, but this version supports at most 65536"));
    CHECK_THAT(refusal(all({"intermediate_size"})), Contains("at most 16777216"));
    for (const Json& config :
         {all({"vocab_size", "hidden_size"}), all({"hidden_size", "intermediate_size"}),
          all({"num_attention_heads", "num_key_value_heads", "head_dim"}),
          all({"head_dim", "hidden_size"})})
        CHECK_THAT(refusal(config),
                   Contains("parameters, but this version supports at most 8.8e+12"));
    CHECK_THAT(refusal(with(llama(), "hidden_size", most + 1)), Contains("must be from 1 to"));
    CHECK_THAT(refusal(with(llama(), "num_hidden_layers", 1025)), Contains("from 1 to 1024"));
    for (const double size : {1e30, 1e300, -1e18})
        CHECK_THAT(refusal(with(llama(), "num_hidden_layers", size)),
                   Contains("num_hidden_layers"));
    Json moe = as("MixtralForCausalLM");
    moe["num_experts_per_tok"] = 2;
    CHECK_THAT(refusal(with(moe, "num_local_experts", 1025)), Contains("from 1 to 1024"));
    moe["num_local_experts"] = 1024;
    moe["num_hidden_layers"] = 33;
    CHECK_THAT(refusal(moe), Contains("33 layers of 1024 experts make 33792 experts"));
}

TEST_CASE("what is not computed here is refused by its field") {
    CHECK_THAT(refusal(as("T5ForConditionalGeneration")),
               Contains("the architecture `T5ForConditionalGeneration` is not supported") &&
                   Contains("supported are LlamaForCausalLM") && Contains("torch.export.save"));
    CHECK_THAT(refusal(with(llama(), "hidden_act", "mish")),
               Contains("hidden_act") && Contains("mish"));
    CHECK_THAT(refusal(with(llama(), "hidden_size", "32")), Contains("hidden_size: an integer"));
    CHECK_THAT(refusal(with(llama(), "hidden_size", -1)), Contains("hidden_size: must be from 1"));
    CHECK_THAT(refusal(with(llama(), "hidden_size", 33)), Contains("does not divide hidden_size"));
    CHECK_THAT(refusal(with(llama(), "num_key_value_heads", 3)),
               Contains("4 heads cannot be divided evenly among 3"));
    CHECK_THAT(refusal(with(llama(), "rms_norm_eps", 0)),
               Contains("rms_norm_eps: must be above 0"));
    CHECK_THAT(refusal(with(llama(), "quantization_config", {{"bits", 4}})),
               Contains("quantization_config: the weights are quantized"));
    CHECK_THAT(refusal(with(llama(), "rope_scaling", {{"type", "ntk"}, {"factor", 2}})),
               Contains("rope type `ntk` is not supported"));
    CHECK_THAT(refusal(with(llama(), "dtype", "float8_e4m3fn")), Contains("float8_e4m3fn"));
    CHECK_THAT(refusal(with(as("Qwen2ForCausalLM"), "layer_types", {"linear_attention"})),
               Contains("layers of type `linear_attention`"));
    Json phi = as("Phi3ForCausalLM");
    phi["rope_scaling"] = {{"type", "longrope"}, {"short_factor", {1, 2}}, {"long_factor", {1, 2}}};
    CHECK_THAT(refusal(phi),
               Contains("has 2 factors, expected 4: one for each pair of the 8 rotated elements"));
    Json without = llama();
    without.erase("vocab_size");
    CHECK_THAT(refusal(without), Contains("the field `vocab_size` is missing"));
    CHECK_THAT(test::error_of(ExitCode::kInput,
                              [] { static_cast<void>(parse_transformer_config("c", "{")); }),
               Contains("c: is not valid JSON"));
}

TEST_CASE("files of a split model that are missing are counted and named") {
    const test::TemporaryFolder folder;
    const std::string at = folder.path() + "/tiny";
    std::filesystem::create_directories(at);
    test::write_file(at + "/config.json", llama().dump());
    Json map;
    for (int i = 1; i <= 5; ++i)
        map[std::to_string(i)] = fmt::format("model-0000{}-of-00005.safetensors", i);
    test::write_file(at + "/model.safetensors.index.json", Json{{"weight_map", map}}.dump());
    const auto why = [&] {
        return test::error_of(ExitCode::kInput, [&] { require_weights(open_model_folder(at)); });
    };
    CHECK_THAT(why(),
               Contains("/tiny: 5 of the 5 files with its weights are missing: "
                        "model-00001-of-00005.safetensors, model-00002-of-00005.safetensors, "
                        "model-00003-of-00005.safetensors, …; copy them into the folder"));
    for (int i = 1; i <= 4; ++i)
        test::write_file(fmt::format("{}/model-0000{}-of-00005.safetensors", at, i), "content");
    CHECK_THAT(why(),
               Contains("1 of the 5 files with its weights is missing: "
                        "model-00005-of-00005.safetensors; copy it into the folder, or fetch "
                        "what is missing: hf download ORG/tiny --local-dir " +
                        at));
}

TEST_CASE("a model's folder is known by its config.json") {
    const test::TemporaryFolder folder;
    CHECK_FALSE(model_folder_of(folder.path()));
    CHECK_FALSE(model_folder_of(folder.path() + "/train.pt"));
    const std::string config = folder.path() + "/config.json";
    test::write_file(config, llama().dump());
    CHECK(model_folder_of(folder.path()) == folder.path());
    CHECK(model_folder_of(config) == folder.path());
    CHECK(open_model_folder(config).weights.empty());
    CHECK(open_model_folder(folder.path()).files() == std::vector{config});
    const std::string index = folder.path() + "/model.safetensors.index.json";
    test::write_file(index, R"({"weight_map": {"a": "../x.safetensors"}})");
    CHECK_THAT(test::error_of(ExitCode::kInput,
                              [&] { static_cast<void>(open_model_folder(folder.path())); }),
               Contains("is not in the same folder"));
    test::write_file(index, R"({"weight_map": {"a": "1.safetensors", "b": "1.safetensors"}})");
    CHECK(open_model_folder(folder.path()).files() ==
          std::vector{config, index, folder.path() + "/1.safetensors"});
    test::write_file(index, R"({"weight_map": {"a": "./below/../1.safetensors", "b": "c/2"}})");
    CHECK(open_model_folder(folder.path()).files() ==
          std::vector{config, index, folder.path() + "/1.safetensors", folder.path() + "/c/2"});
    for (const char* outside : {"/1.safetensors", "below/../../1.safetensors", "", "below/"}) {
        test::write_file(index, Json{{"weight_map", {{"a", outside}}}}.dump());
        CHECK_THAT(test::error_of(ExitCode::kInput,
                                  [&] { static_cast<void>(open_model_folder(folder.path())); }),
                   Contains("is not in the same folder"));
    }
}

}  // namespace
}  // namespace dslaunch::storage
