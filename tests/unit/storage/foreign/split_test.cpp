// Checkpoints of models that DeepSpeed split among tensor ranks and pipeline stages
// (tests/fixtures/make_deepspeed_split.py). Weights and states must be those that DeepSpeed's own
// ds_to_universal.py puts together.
#include "storage/foreign/deepspeed_split.h"

#include <filesystem>
#include <functional>

#include "base/error.h"
#include "deepspeed_fixtures.h"
#include "storage/checkpoint/checkpoint_reader.h"
#include "storage/foreign/import.h"
#include "support/catch.h"
#include "support/temporary_folder.h"
#include "support/text_tools.h"

using namespace dslaunch;
using namespace dslaunch::storage;
using namespace dslaunch::test;
namespace fs = std::filesystem;

namespace {

const std::string kSplit = kFixtures + "/split";

struct SplitFixture {
    const char* name;
    const char* writer;
    size_t tensors;
    const char* buffer;
};
// Two blocks of six parameters and a buffer, with embedding and head; in a pipeline, three blocks,
// and one tensor is both embedding and head.
const SplitFixture kList[] = {
    {"tensor-1", "DeepSpeed 0.19.8, ZeRO stage 1, 2 ranks, 2 tensor ranks", 16, "blocks.1.offset"},
    {"tensor-3", "DeepSpeed 0.19.8, ZeRO stage 3, 2 ranks, 2 tensor ranks", 16, "blocks.1.offset"},
    {"pipe-bf16", "DeepSpeed 0.19.8, ZeRO stage 1, 2 ranks, 2 pipeline stages", 22, "3.offset"},
    {"pipe-fp32", "DeepSpeed 0.19.8, ZeRO stage 1, 2 ranks, 2 pipeline stages", 22, "3.offset"},
};

// Returns the message with which a changed copy of a fixture is refused.
std::string refusal(const char* name, const std::function<void(const std::string&)>& change) {
    const TemporaryFolder folder;
    fs::copy(fmt::format("{}/{}", kSplit, name), folder.path(),
             fs::copy_options::recursive | fs::copy_options::overwrite_existing);
    change(folder.path() + "/global_step3");
    return error_of(ExitCode::kInput,
                    [&] { static_cast<void>(open_deepspeed(folder.path(), "", {})); });
}

}  // namespace

TEST_CASE("the parts of tensor and pipeline ranks are joined as DeepSpeed's converter does") {
    for (const SplitFixture& fixture : kList) {
        INFO(fixture.name);
        const auto source = open_deepspeed(fmt::format("{}/{}", kSplit, fixture.name), "", {});
        CHECK(source->writer() == fixture.writer);
        for (const std::string& note : source->notes()) UNSCOPED_INFO(note);
        CHECK(source->notes().empty());
        CHECK(source->checkpoint()->training.step == 3);
        CHECK(source->checkpoint()->states == std::vector<std::string>{"exp_avg", "exp_avg_sq"});
        check_values(*source, fmt::format("{}/{}.safetensors", kSplit, fixture.name));
        CHECK(source->tensors().size() == fixture.tensors);
        const int buffer = find(*source, fixture.buffer);
        REQUIRE(buffer >= 0);
        CHECK(source->tensors()[static_cast<size_t>(buffer)].kind == TensorKind::kBuffer);
        const TemporaryFolder folder;
        const auto tree = make_disk_tree();
        const ImportReport report = import_checkpoint(
            *tree, {fmt::format("{}/{}", kSplit, fixture.name), "", {}, folder.path() + "/out"});
        CHECK(report.has_states);
        CHECK(report.step == 3);
        const CheckpointReader reader(*tree, report.folder);
        for (size_t i = 0; i < reader.checkpoint().files.size(); ++i)
            CHECK(reader.verify_file(i).empty());
    }
}

TEST_CASE("a split checkpoint that is not whole is refused by the file's name") {
    const auto removes = [](const char* file) {
        return [file](const std::string& folder) { fs::remove(folder + "/" + file); };
    };
    const auto says = [](const std::string& said, const char* what) {
        INFO(said << " instead of " << what);
        CHECK(said.find(what) != std::string::npos);
    };
    says(refusal("tensor-1",
                 [](const std::string& folder) {
                     fs::remove(folder + "/mp_rank_01_model_states.pt");
                     fs::remove(folder + "/zero_pp_rank_0_mp_rank_01_optim_states.pt");
                 }),
         "2 model ranks wrote the checkpoint");
    says(refusal("tensor-1", removes("mp_rank_01_model_states.pt")), "mp_rank_01");
    says(refusal("tensor-1", removes("zero_pp_rank_0_mp_rank_01_optim_states.pt")),
         "the ranks' files are missing");
    says(refusal("tensor-1",
                 [](const std::string& folder) {
                     for (const char* kind : {"mp_rank_0{}_model_states.pt",
                                              "zero_pp_rank_0_mp_rank_0{}_optim_states.pt"}) {
                         const auto file = [&](int rank) {
                             return folder + "/" + fmt::format(fmt::runtime(kind), rank);
                         };
                         fs::rename(file(1), file(2));
                     }
                 }),
         "the files of a model rank are missing: 2 of 3 are there");
    says(refusal("pipe-fp32",
                 [](const std::string& folder) {
                     fs::copy_file(folder + "/layer_01-model_states.pt",
                                   folder + "/layer_02-model_states.pt",
                                   fs::copy_options::overwrite_existing);
                 }),
         "differs from the optimizer's master weights, rounded");
}

TEST_CASE("a split checkpoint without its last ranks is refused, also with the layers' files") {
    const auto says = [](const std::string& said, const char* what) {
        INFO(said << " instead of " << what);
        CHECK(said.find(what) != std::string::npos);
    };
    for (const char* name : {"pipe-bf16", "pipe-fp32"}) {
        INFO(name);
        says(refusal(name,
                     [](const std::string& folder) {
                         for (const char* file : {"mp_rank_01_model_states.pt",
                                                  "zero_pp_rank_0_mp_rank_01_optim_states.pt",
                                                  "bf16_zero_pp_rank_0_mp_rank_01_optim_states.pt"})
                             fs::remove(folder + "/" + file);
                     }),
             "2 model ranks wrote the checkpoint, but files of 1 are there");
    }
    // The model's file of a larger group of ranks: its number is the only pickled 2 after the name.
    const auto claims = [](const std::string& folder, char ranks) {
        for (const char* rank : {"00", "01"}) {
            const std::string path = fmt::format("{}/mp_rank_{}_model_states.pt", folder, rank);
            std::string bytes = content_of(path);
            const size_t key = bytes.find("mp_world_size");
            REQUIRE(key != std::string::npos);
            const size_t at = bytes.find("K\x02", key);
            REQUIRE(at != std::string::npos);
            REQUIRE(at < key + 24);
            bytes[at + 1] = ranks;
            write_file(path, bytes);
        }
    };
    says(refusal("tensor-1", [&](const std::string& folder) { claims(folder, '\4'); }),
         "4 model ranks wrote the checkpoint, but files of 2 are there");
    // A layer's file, with parameters and a buffer.
    says(refusal(
             "pipe-fp32",
             [](const std::string& folder) { fs::remove(folder + "/layer_02-model_states.pt"); }),
         "is in layer 2, but the folder has 0 of 1 files of this layer");
    // A file that belongs to no rank: no parameter of it is trained, and its layer has no buffer.
    says(refusal("pipe-fp32",
                 [&](const std::string& folder) {
                     claims(folder, '\1');
                     fs::copy_file(folder + "/layer_01-model_states.pt",
                                   folder + "/layer_09-model_states.pt");
                 }),
         "is neither trained by a rank, nor frozen, nor a buffer");
    // Tied weights whose copy has other values.
    says(refusal("pipe-fp32",
                 [](const std::string& folder) {
                     const std::string path = folder + "/layer_00-model_states.pt";
                     std::string bytes = content_of(path);
                     const size_t at = bytes.find("/data/0");
                     REQUIRE(at != std::string::npos);
                     bytes[(at + 7 + 63) / 64 * 64 + 2] ^= '\x40';
                     write_file(path, bytes);
                 }),
         "is a frozen parameter, which is not supported here");
}

TEST_CASE("rules of split tensors join rows, columns, halves and several parameters in one") {
    // The rules are made of a fixture's file, which has none for these names, so that the
    // dictionary is made here.
    const TorchFile file(kSplit + "/tensor-1/global_step3/mp_rank_00_model_states.pt");
    std::deque<PickleValue> values;
    const auto text = [&](const std::string& said) -> const PickleValue* {
        return &values.emplace_back(PickleValue{.kind = PickleValue::Kind::kText, .text = said});
    };
    const auto integer = [&](int64_t number) -> const PickleValue* {
        return &values.emplace_back(
            PickleValue{.kind = PickleValue::Kind::kInteger, .integer = number});
    };
    const auto list = [&](std::vector<const PickleValue*> items,
                          PickleValue::Kind kind = PickleValue::Kind::kList) -> const PickleValue* {
        return &values.emplace_back(PickleValue{.kind = kind, .items = std::move(items)});
    };
    using Kind = PickleValue::Kind;
    const PickleValue* const compound =
        list({text("patterns"), list({text("qkv.*")}), text("shape"),
              list({list({integer(4), integer(2), integer(2)}, Kind::kTuple), integer(-1)},
                   Kind::kTuple),
              text("partition_dim"), integer(0)},
             Kind::kDict);
    const PickleValue* const alike =
        list({text("patterns"), list({text("three")}), text("shape"),
              list({integer(3), integer(-1)}, Kind::kTuple), text("partition_dim"), integer(0)},
             Kind::kDict);
    const PickleValue* const info = list(
        {text("parameter_with_row_parallelism_patterns"), list({text("row")}),
         text("tp_replicated_parameter_patterns"), list({text("same")}),
         text("parameter_to_average_patterns"), list({text("mean")}),
         text("parameter_with_2_sub_params_cat_dim_0"), list({text("half")}),
         text("vocabulary_parameter_patterns"), list({text("word")}), text("original_vocab_size"),
         integer(7), text("parameter_with_sub_params"), list({compound, alike})},
        Kind::kDict);
    const SplitRules rules(file, info, 2);
    // Returns the pieces as "rank:begin+width", and the shape.
    const auto told = [&](const char* name, const std::vector<std::vector<int64_t>>& shapes) {
        const Joining joining = rules.of(name, shapes);
        std::string said;
        for (const Joining::Piece& piece : joining.pieces)
            said += fmt::format("{}:{}+{} ", piece.rank, piece.begin, piece.width);
        for (const int64_t size : joining.shape) said += fmt::format("[{}]", size);
        return said + fmt::format(" {} {}", joining.outer, joining.inner);
    };
    CHECK(told("column", {{4, 3}, {4, 3}}) == "0:0+4 1:0+4 [8][3] 1 3");
    CHECK(told("column", {{5, 3}, {4, 3}}) == "0:0+5 1:0+4 [9][3] 1 3");
    CHECK(told("row", {{4, 3}, {4, 2}}) == "0:0+3 1:0+2 [4][5] 4 1");
    CHECK(told("word", {{4, 3}, {4, 3}}) == "0:0+4 1:0+4 [7][3] 1 3");
    CHECK(told("half", {{4, 3}, {4, 3}}) == "0:0+2 1:0+2 0:2+2 1:2+2 [8][3] 1 3");
    CHECK(told("qkv.weight", {{4, 3}, {4, 3}}) == "0:0+2 1:0+2 0:2+1 1:2+1 0:3+1 1:3+1 [8][3] 1 3");
    CHECK(told("three", {{6, 5}, {6, 5}}) == "0:0+2 1:0+2 0:2+2 1:2+2 0:4+2 1:4+2 [12][5] 1 5");
    CHECK(rules.of("same", {{3}, {3}}).kind == Joining::Kind::kReplicated);
    CHECK(rules.of("mean", {{3}, {3}}).kind == Joining::Kind::kAverage);
    for (const auto& [name, shapes] :
         std::vector<std::pair<const char*, std::vector<std::vector<int64_t>>>>{
             {"column", {{4, 3}, {4, 2}}},
             {"row", {{4}, {4}}},
             {"same", {{4}, {3}}},
             {"half", {{3, 3}, {3, 3}}},
             {"qkv", {{5, 3}, {4, 3}}},
             {"three", {{5, 5}, {5, 5}}}}) {
        INFO(name);
        CHECK_FALSE(error_of(ExitCode::kInput, [&, name = name, &shapes = shapes] {
                        static_cast<void>(rules.of(name, shapes));
                    }).empty());
    }
    // DeepSpeed's own word that a tensor cannot be joined, and maps of others.
    const auto dict = [&](std::vector<const PickleValue*> items) {
        return list(std::move(items), Kind::kDict);
    };
    const auto numbers = [&](const std::vector<int64_t>& values_of) {
        std::vector<const PickleValue*> items;
        for (const int64_t value : values_of) items.push_back(integer(value));
        return list(std::move(items));
    };
    struct Piece {
        std::vector<int64_t> shape;
        int64_t source;
        std::vector<int64_t> source_strides;
        int64_t dest;
        std::vector<int64_t> dest_strides;
    };
    const auto piece = [&](const Piece& one) {
        return dict({text("shape"), numbers(one.shape), text("source"),
                     list({integer(one.source), numbers(one.source_strides)}), text("dest"),
                     list({integer(one.dest), numbers(one.dest_strides)}), text("locations"),
                     numbers({0})});
    };
    const auto map_of = [&](const std::vector<int64_t>& whole, const std::vector<int64_t>& part,
                            const std::vector<std::vector<Piece>>& ranks) {
        std::vector<const PickleValue*> of_ranks;
        for (size_t rank = 0; rank < ranks.size(); ++rank) {
            std::vector<const PickleValue*> pieces;
            for (const Piece& one : ranks[rank]) pieces.push_back(piece(one));
            of_ranks.push_back(integer(static_cast<int64_t>(rank)));
            of_ranks.push_back(
                dict({text("shard_shape"), numbers(part), text("pieces"), list(pieces)}));
        }
        return dict({text("logical_shape"), numbers(whole), text("ranks"), dict(of_ranks)});
    };
    const auto info_with = [&](int64_t version, const PickleValue* map) {
        return dict({text("autotp_unsupported_parameter_patterns"),
                     dict({text("^odd$"), text("it is fused in another order")}),
                     text("affine_map"),
                     dict({text("version"), integer(version), text("params"),
                           dict({text("^fused$"), map})})});
    };
    const auto fault_of = [&](const PickleValue* told_info, const char* name,
                              const std::vector<std::vector<int64_t>>& shapes) {
        return error_of(ExitCode::kInput, [&] {
            static_cast<void>(SplitRules(file, told_info, 2).of(name, shapes));
        });
    };
    // Rank 0 has rows 0 and 2, rank 1 rows 1 and 3, each with row 4 too.
    const Piece both = {{1, 3}, 12, {3, 1}, 6, {3, 1}};
    const PickleValue* const fused =
        map_of({5, 3}, {3, 3},
               {{{{1, 3}, 0, {3, 1}, 0, {3, 1}}, {{1, 3}, 6, {3, 1}, 3, {3, 1}}, both},
                {{{2, 3}, 3, {6, 1}, 0, {3, 1}}, both}});
    const Joining mapped = SplitRules(file, info_with(1, fused), 2).of("fused", {{3, 3}, {3, 3}});
    std::string runs;
    for (const Joining::Run& run : mapped.runs)
        runs += fmt::format("{}:{}+{} ", run.rank, run.begin, run.numel);
    CHECK(runs == "0:0+3 1:0+3 0:3+3 1:3+3 0:6+3 ");
    CHECK(mapped.shape == std::vector<int64_t>{5, 3});
    REQUIRE(mapped.copies.size() == 1);
    CHECK(mapped.copies[0].second.rank == 1);
    CHECK(fault_of(info_with(1, fused), "odd", {{4, 3}, {4, 3}})
              .find("it is fused in another order") != std::string::npos);
    CHECK(fault_of(info_with(2, fused), "fused", {{3, 3}, {3, 3}}).find("versions up to 1") !=
          std::string::npos);
    CHECK(fault_of(info_with(1, fused), "fused", {{4, 3}, {3, 3}})
              .find("a rank's part has another shape") != std::string::npos);
    const PickleValue* const gap = map_of(
        {3, 3}, {1, 3}, {{{{1, 3}, 0, {3, 1}, 0, {3, 1}}}, {{{1, 3}, 6, {3, 1}, 0, {3, 1}}}});
    CHECK(fault_of(info_with(1, gap), "fused", {{1, 3}, {1, 3}}).find("leave elements out") !=
          std::string::npos);
    const PickleValue* const outside = map_of(
        {2, 3}, {1, 3}, {{{{1, 3}, 0, {3, 1}, 0, {3, 1}}}, {{{1, 3}, 3, {3, 1}, 1, {3, 1}}}});
    CHECK(fault_of(info_with(1, outside), "fused", {{1, 3}, {1, 3}}).find("outside its rank") !=
          std::string::npos);
    const SplitRules none(file, nullptr, 2);
    CHECK(error_of(ExitCode::kInput, [&] {
              static_cast<void>(none.of("w", {{1}, {1}}));
          }).find("has no universal_checkpoint_info") != std::string::npos);
}
