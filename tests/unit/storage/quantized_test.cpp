// Weights that folders store rounded, read again: tensors written by hand, in the layouts of
// compressed-tensors, GPTQ, AWQ and auto-round, and tensors that do not fit each other.
#include "storage/quantized/quantized_weight.h"

#include <cstring>
#include <fstream>

#include "base/error.h"
#include "base/float8.h"
#include "support/catch.h"
#include "support/temporary_folder.h"
#include "support/text_tools.h"
#include "support/write_safetensors.h"

namespace dslaunch::storage {
namespace {

using Json = JsonPlace::Json;

Quantization read_quantization(const Json& json) {
    return *parse_quantization(JsonPlace("config.json", json));
}

Json compressed(const Json& weights, const std::string& format = "pack-quantized") {
    return {{"quant_method", "compressed-tensors"},
            {"format", format},
            {"config_groups", {{"group_0", {{"targets", {"Linear"}}, {"weights", weights}}}}}};
}

Json int_weights(int bits, int group, bool symmetric = true) {
    return {{"num_bits", bits},
            {"type", "int"},
            {"symmetric", symmetric},
            {"strategy", group > 0 ? "group" : "channel"},
            {"group_size", group > 0 ? Json(group) : Json(nullptr)}};
}

// The tensors of one weight, in a file.
class Parts {
  public:
    template <typename T>
    Parts& add(const std::string& suffix, DType dtype, std::vector<int64_t> shape,
               const std::vector<T>& values) {
        std::vector<std::byte> bytes(values.size() * sizeof(T));
        std::memcpy(bytes.data(), values.data(), bytes.size());
        bytes_[suffix] = std::move(bytes);
        entries_[suffix] = {"m." + suffix, dtype, std::move(shape), {}};
        return *this;
    }
    Parts& words(const std::string& suffix, std::vector<int64_t> shape,
                 const std::vector<uint32_t>& values) {
        return add(suffix, DType::kI32, std::move(shape), values);
    }
    Parts& floats(const std::string& suffix, std::vector<int64_t> shape,
                  const std::vector<float>& values) {
        return add(suffix, DType::kF32, std::move(shape), values);
    }
    Parts& without(const std::string& suffix) {
        entries_.erase(suffix);
        return *this;
    }

    [[nodiscard]] QuantizedParts in_file() const {
        const std::string path = folder_.path() + "/w.safetensors";
        std::vector<SafetensorsEntry> all;
        for (const auto& [suffix, entry] : entries_) {
            all.push_back(entry);
            all.back().bytes = bytes_.at(suffix);
        }
        test::write_safetensors(path, all);
        const auto file = std::make_shared<const MappedFile>(path);
        QuantizedParts parts;
        for (SafetensorsEntry& entry : parse_safetensors(path, file->bytes()).entries)
            parts.emplace(entry.name.substr(2), QuantizedPart{file, entry});
        return parts;
    }

  private:
    test::TemporaryFolder folder_;
    std::map<std::string, SafetensorsEntry> entries_;
    std::map<std::string, std::vector<std::byte>> bytes_;
};

std::vector<std::vector<float>> rows_of(const Json& config, const Parts& parts) {
    const QuantizedWeight weight(read_quantization(config), "m", parts.in_file());
    std::vector<std::vector<float>> rows;
    for (int64_t r = 0; r < weight.shape()[0]; ++r) {
        rows.emplace_back(static_cast<size_t>(weight.shape()[1]));
        weight.read_row(r, rows.back());
    }
    return rows;
}

using Rows = std::vector<std::vector<float>>;

TEST_CASE("packed integers of compressed-tensors") {
    Parts parts;
    parts.words("weight_packed", {2, 1}, {0x76543210, 0xFEDCBA98})
        .floats("weight_scale", {2, 2}, {1, 2, 0.5F, 1})
        .add("weight_shape", DType::kI64, {2}, std::vector<int64_t>{2, 8});
    CHECK(rows_of(compressed(int_weights(4, 4)), parts) ==
          Rows{{-8, -7, -6, -5, -8, -6, -4, -2}, {0, 0.5F, 1, 1.5F, 4, 5, 6, 7}});
    // Zero points: rows in the bits of a word, one word for each group.
    parts.words("weight_zero_point", {1, 2}, {0x08, 0xF0});
    CHECK(rows_of(compressed(int_weights(4, 4, false)), parts) ==
          Rows{{-8, -7, -6, -5, 8, 10, 12, 14}, {4, 4.5F, 5, 5.5F, -3, -2, -1, 0}});
    // Three bits: 0, 1, …, 7, then 5, 6, 7 across the end of the first word.
    Parts three;
    three.words("weight_packed", {1, 2}, {0xF5FAC688, 1})
        .floats("weight_scale", {1, 1}, {1})
        .add("weight_shape", DType::kI64, {2}, std::vector<int64_t>{1, 11});
    const Rows row = rows_of(compressed(int_weights(3, 0)), three);
    CHECK(row[0][0] == -4);
    CHECK(row[0][1] == -3);
    CHECK(row[0][2] == -2);
    CHECK(row[0][10] == 3);  // two bits of the first word, and one of the second: 7
}

TEST_CASE("integers and floats of a byte each") {
    Parts plain;
    plain.add("weight", DType::kI8, {2, 3}, std::vector<int8_t>{-128, 0, 127, 1, 2, 3})
        .floats("weight_scale", {2, 1}, {0.5F, 2});
    CHECK(rows_of(compressed(int_weights(8, 0), "int-quantized"), plain) ==
          Rows{{-64, 0, 63.5F}, {2, 4, 6}});
    Parts floats;
    floats
        .add("weight", DType::kF8E4M3, {1, 3},
             std::vector<uint8_t>{e4m3_of(1.5F), e4m3_of(-448), e4m3_of(0x1p-9F)})
        .floats("weight_scale", {1, 1}, {2});
    CHECK(rows_of(compressed({{"num_bits", 8}, {"type", "float"}, {"strategy", "channel"}},
                             "float-quantized"),
                  floats) == Rows{{3, -896, 0x1p-8F}});
}

TEST_CASE("GPTQ's tensors, with its first zero points and its second") {
    const Json first = {{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 4}};
    Parts parts;  // 8 inputs, 2 outputs; each word has the inputs of one output
    parts.words("qweight", {1, 2}, {0x76543210, 0xFEDCBA98})
        .words("qzeros", {2, 1}, {0x87, 0x0F})
        .floats("scales", {2, 2}, {1, 2, 0.5F, 4});
    // Zero points are stored minus 1: 8 and 9 in the first group, 0 (stored 15) and 1 in the next.
    CHECK(rows_of(first, parts) ==
          Rows{{-8, -7, -6, -5, 2, 2.5F, 3, 3.5F}, {-2, 0, 2, 4, 44, 48, 52, 56}});
    Json second = first;
    second["checkpoint_format"] = "gptq_v2";
    CHECK(rows_of(second, parts)[0] == std::vector<float>{-7, -6, -5, -4, -5.5F, -5, -4.5F, -4});
    // The order of the inputs' groups is given: the last input first.
    parts.words("g_idx", {8}, {1, 0, 0, 0, 0, 0, 0, 1});
    CHECK(rows_of(first, parts)[0] == std::vector<float>{0, -7, -6, -5, -4, -3, -2, 3.5F});
}

TEST_CASE("AWQ's tensors, with its order of the outputs") {
    const Json config = {{"quant_method", "awq"},
                         {"bits", 4},
                         {"group_size", 2},
                         {"zero_point", true},
                         {"version", "gemm"}};
    Parts parts;  // 2 inputs, 8 outputs: bits 0 to 3 are output 0, 4 to 7 output 2, then 4, 6, 1, …
    parts.words("qweight", {2, 1}, {0x75316420, 0})
        .words("qzeros", {1, 1}, {0})
        .floats("scales", {1, 8}, {1, 1, 1, 1, 1, 1, 1, 2});
    const Rows rows = rows_of(config, parts);
    REQUIRE(rows.size() == 8);
    for (size_t output = 0; output < 8; ++output) {
        CHECK(rows[output][0] == static_cast<float>(output) * (output == 7 ? 2 : 1));
        CHECK(rows[output][1] == 0);
    }
}

TEST_CASE("tensors that do not fit each other are refused by name") {
    const Json config = compressed(int_weights(4, 4));
    const auto whole = [](Parts& parts) -> Parts& {
        return parts.words("weight_packed", {2, 1}, {0, 0})
            .floats("weight_scale", {2, 2}, {1, 1, 1, 1})
            .add("weight_shape", DType::kI64, {2}, std::vector<int64_t>{2, 8});
    };
    const auto refused = [&](const Json& how, const Parts& parts) {
        return test::error_of(
            [&] { const QuantizedWeight weight(read_quantization(how), "m", parts.in_file()); });
    };
    using Catch::Contains;
    {
        Parts parts;
        CHECK(refused(config, whole(parts)) == "accepted");
        CHECK_THAT(refused(compressed(int_weights(8, 4)), parts),
                   Contains("m.weight_packed") && Contains("no number of bits"));
        CHECK_THAT(refused(compressed(int_weights(4, 8)), parts),
                   Contains("m.weight_scale") && Contains("[2, 2]"));
        CHECK_THAT(refused(compressed(int_weights(4, 4, false)), parts),
                   Contains("matches these scales"));
    }
    for (const char* missing : {"weight_packed", "weight_scale", "weight_shape"}) {
        Parts parts;
        CHECK_THAT(refused(config, whole(parts).without(missing)),
                   Contains(std::string("no tensor `m.") + missing));
    }
    {
        Parts parts;
        whole(parts).add("weight_shape", DType::kI64, {2}, std::vector<int64_t>{2, INT64_MAX});
        CHECK_THAT(refused(config, parts), Contains("but sizes must be from 1 to"));
        parts.add("weight_shape", DType::kI64, {2}, std::vector<int64_t>{-2, 8});
        CHECK_THAT(refused(config, parts), Contains("the size -2"));
        parts.add("weight_shape", DType::kI64, {3}, std::vector<int64_t>{2, 8, 1});
        CHECK_THAT(refused(config, parts), Contains("two integers"));
    }
    {
        Parts parts;
        whole(parts).add("weight_packed", DType::kF32, {2, 1}, std::vector<float>{0, 0});
        CHECK_THAT(refused(config, parts), Contains("has type F32"));
    }
    {
        Parts parts;
        whole(parts).floats("weight_scale", {2, 3}, {1, 1, 1, 1, 1, 1});
        CHECK_THAT(refused(config, parts), Contains("do not divide 8 inputs"));
        whole(parts).words("weight_g_idx", {8}, {0, 0, 0, 0, 1, 1, 2, 1});

        CHECK_THAT(refused(config, parts), Contains("puts an input into group 2"));
    }
    const Json gptq = {{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 4}};
    Parts parts;
    parts.words("qweight", {1, 2}, {0, 0})
        .words("qzeros", {2, 1}, {0, 0})
        .floats("scales", {2, 2}, {1, 1, 1, 1})
        .words("g_idx", {8}, {0, 0, 0, 0, 0, 0, 0, 9});
    CHECK_THAT(refused(gptq, parts), Contains("puts an input into group 9"));
    parts.words("qzeros", {1, 2}, {0, 0});
    CHECK_THAT(refused(gptq, parts), Contains("m.qzeros"));
    parts.floats("scales", {4, 1}, {1, 1, 1, 1});
    CHECK_THAT(refused(gptq, parts), Contains("m.qweight"));
}

TEST_CASE("settings that change the meaning of the numbers are refused") {
    const auto with = [](const char* key, const Json& value) {
        Json json = compressed(int_weights(4, 32));
        json[key] = value;
        return json;
    };
    const auto with_weights = [](const char* key, const Json& value) {
        Json weights = int_weights(4, 32);
        weights[key] = value;
        return compressed(weights);
    };
    const auto with_inputs = [](const Json& inputs) {
        Json json = compressed(int_weights(8, 0), "int-quantized");
        json["config_groups"]["group_0"]["input_activations"] = inputs;
        return json;
    };
    const std::pair<Json, const char*> table[] = {
        {with("format", "marlin-24"), "marlin-24"},
        {with("kv_cache_scheme", {{"num_bits", 8}}), "keys and values"},
        {with("transform_config", {{"R1", 1}}), "transformed weights"},
        {with("config_groups", Json::object()), "names no group"},
        {with_weights("num_bits", 9), "1 to 8 bits"},
        {with_weights("num_bits", 0), "1 to 8 bits"},
        {with_weights("strategy", "block"), "tensor, channel and group"},
        {with_weights("group_size", 0), "a group must have at least one input"},
        {with_weights("type", "complex"), "int or float"},
        {with_weights("type", "float"), "floats of 8 bits"},
        {with_inputs({{"num_bits", 8}, {"dynamic", false}}), "only dynamic scales"},
        {with_inputs({{"num_bits", 8}, {"dynamic", true}, {"strategy", "tensor"}}), "by token"},
        {{{"quant_method", "gptq"}, {"bits", 5}, {"group_size", 32}}, "2, 3, 4 or 8"},
        {{{"quant_method", "awq"}, {"bits", 4}, {"group_size", 32}, {"version", "gemv"}}, "gemm"},
        {{{"quant_method", "exl2"}}, "(exl2)"}};
    for (const auto& [json, why] : table)
        CHECK_THAT(test::error_of([&] { static_cast<void>(read_quantization(json)); }),
                   Catch::Contains(why));
    CHECK(
        read_quantization(with_inputs({{"num_bits", 8}, {"dynamic", true}, {"strategy", "token"}}))
            .inputs == InputRounding::kInt8);
}

TEST_CASE("sizes of groups that mean nothing are refused, and -1 is the whole row") {
    const auto gptq = [](int64_t group) {
        return Json{{"quant_method", "gptq"}, {"bits", 4}, {"group_size", group}};
    };
    const auto awq = [](int64_t group) {
        return Json{{"quant_method", "awq"}, {"bits", 4}, {"group_size", group}};
    };
    for (const int64_t group : {int64_t{0}, int64_t{-7}, INT64_MAX}) {
        INFO(group);
        CHECK_THAT(test::error_of([&] { read_quantization(gptq(group)); }),
                   Catch::Contains("group_size"));
        CHECK_THAT(test::error_of([&] { read_quantization(awq(group)); }),
                   Catch::Contains("group_size"));
    }
    CHECK(read_quantization(gptq(-1)).schemes.front().group == 0);
    CHECK(read_quantization(awq(-1)).schemes.front().group == 0);
    // compressed-tensors without a strategy: its library then takes the row for -1.
    const Json row = {{"num_bits", 4}, {"type", "int"}, {"symmetric", true}, {"group_size", -1}};
    CHECK(read_quantization(compressed(row)).schemes.front().group == 0);
}

TEST_CASE("settings that say nothing about the numbers are accepted") {
    Json config = compressed(int_weights(4, 4));
    config["sparsity_config"] = {{"format", "dense"}};
    Parts parts;
    parts.words("weight_packed", {1, 1}, {0x76543210})
        .floats("weight_scale", {1, 2}, {1, 2})
        .add("weight_shape", DType::kI64, {2}, std::vector<int64_t>{1, 8})
        .words("weight_g_idx", {8}, std::vector<uint32_t>(8, 0xFFFFFFFF));
    CHECK(rows_of(config, parts) == Rows{{-8, -7, -6, -5, -8, -6, -4, -2}});
    config["sparsity_config"] = {{"format", "sparse-24-bitmask"}};
    CHECK_THAT(test::error_of([&] { read_quantization(config); }),
               Catch::Contains("sparse weights"));
}

TEST_CASE("auto-round's folders have the layouts of GPTQ and AWQ") {
    const auto with = [](const char* key, const Json& value) {
        Json json = {{"quant_method", "auto-round"}, {"bits", 4}, {"group_size", 4}};
        json["packing_format"] = "auto_round:auto_gptq";
        json[key] = value;
        return json;
    };
    Parts parts;
    parts.words("qweight", {1, 2}, {0x76543210, 0xFEDCBA98})
        .words("qzeros", {2, 1}, {0x87, 0x0F})
        .floats("scales", {2, 2}, {1, 2, 0.5F, 4});
    const std::vector<float> less_one = {-8, -7, -6, -5, 2, 2.5F, 3, 3.5F};
    const std::vector<float> as_is = {-7, -6, -5, -4, -5.5F, -5, -4.5F, -4};
    CHECK(rows_of(with("data_type", "int"), parts)[0] == less_one);
    CHECK(rows_of(with("quant_method", "intel/auto-round"), parts)[0] == less_one);
    for (const char* const format : {"auto_round", "auto_round:gptqmodel"})
        CHECK(rows_of(with("packing_format", format), parts)[0] == as_is);
    Json older = with("backend", "auto_round:gptq");
    older.erase("packing_format");
    CHECK(rows_of(older, parts)[0] == less_one);
    CHECK(read_quantization(with("packing_format", "auto_round:auto_awq")).method ==
          QuantizationMethod::kAwq);
    const std::pair<Json, const char*> table[] = {
        {with("packing_format", "auto_round:fp8_static"), "packing_format"},
        {with("data_type", "mx_fp"), "integers (int)"},
        {with("act_bits", 8), "quantized activations"},
        {with("bits", 1), "2 to 8 bits"},
        {with("rotation_config", {{"type", "hadamard"}}), "transformed weights"},
        {with("extra_config", {{"m", {{"data_type", "fp"}}}}), "integers (int)"}};
    for (const auto& [json, why] : table)
        CHECK_THAT(test::error_of([&] { static_cast<void>(read_quantization(json)); }),
                   Catch::Contains(why));
}

TEST_CASE("a module with bits or groups of its own is known by its tensors' shapes") {
    Json gptq = {{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 8}};
    // 32 outputs of 8 inputs in 8 bits: 2 rows of words, and 8 words of zero points in a group.
    Parts eight;
    eight.words("qweight", {2, 32}, std::vector<uint32_t>(64, 0x83828180))
        .words("qzeros", {2, 8}, std::vector<uint32_t>(16, 0x7F7F7F7F))
        .floats("scales", {2, 32}, std::vector<float>(64, 1));
    CHECK_THAT(test::error_of([&] { rows_of(gptq, eight); }), Catch::Contains("m.qzeros"));
    const Json own = {{"bits", 8}, {"group_size", 4}};
    const std::vector<float> numbers = {0, 1, 2, 3, 0, 1, 2, 3};
    gptq["dynamic"] = {{"+:.*down.*", own}, {"-:.*up.*", Json::object()}};
    CHECK(rows_of(gptq, eight)[31] == numbers);
    const Json round = {{"quant_method", "auto-round"},
                        {"bits", 4},
                        {"group_size", 8},
                        {"extra_config", {{"lm_head", {{"bits", 16}}}, {"m", own}}}};
    CHECK(rows_of(round, eight)[31] == numbers);
    // A module with the bits that quantization_config names for all.
    Parts four;
    four.words("qweight", {1, 32}, std::vector<uint32_t>(32, 0x76543210))
        .words("qzeros", {1, 4}, std::vector<uint32_t>(4, 0xFFFFFFFF))
        .floats("scales", {1, 32}, std::vector<float>(32, 1));
    CHECK(rows_of(round, four)[31] == std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7});
    // 1 output: zero points of 4 and of 8 bits both take a word, and the groups do not tell.
    Json both = gptq;
    both["group_size"] = 4;
    both["dynamic"] = {{"m", {{"bits", 8}, {"group_size", -1}}}};
    Parts one;
    one.words("qweight", {1, 1}, {0}).words("qzeros", {1, 1}, {0}).floats("scales", {1, 1}, {1});
    CHECK(rows_of(both, one) == Rows{{-1, -1, -1, -1}});
    both["group_size"] = -1;
    CHECK_THAT(test::error_of([&] { rows_of(both, one); }),
               Catch::Contains("4 bits in one group, and 8 bits in one group"));
}

TEST_CASE("8-bit floats are those of PyTorch") {
    // Every code is read and rounds to itself; halfway numbers go to the even code.
    for (int code = 0; code < 256; ++code) {
        const float number = fp32_of_e4m3(static_cast<uint8_t>(code));
        if ((code & 0x7F) == 0x7F) {
            CHECK(std::isnan(number));
        } else {
            CHECK(e4m3_of(number) == code);
        }
    }
    CHECK(fp32_of_e4m3(0x7E) == 448);
    CHECK(fp32_of_e4m3(0x01) == 0x1p-9F);
    CHECK(fp32_of_e4m3(0x38) == 1);
    CHECK(e4m3_of(1.0625F) == 0x38);  // halfway between 1 and 1.125
    CHECK(e4m3_of(1.1875F) == 0x3A);  // halfway between 1.125 and 1.25
    CHECK(e4m3_of(0x1p-10F) == 0);
    CHECK(e4m3_of(464) == 0x7E);
    CHECK(e4m3_of(500) == 0x7F);
    CHECK(e4m3_of(-1e30F) == 0xFF);
}

}  // namespace
}  // namespace dslaunch::storage
