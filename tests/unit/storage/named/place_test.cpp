// Paths that name something else than the command needs, and the words that refuse them.
#include "storage/named/place.h"

#include <filesystem>

#include "base/error.h"
#include "base/text/file_faults.h"
#include "storage/huggingface/named_place.h"
#include "support/catch.h"
#include "support/temporary_folder.h"
#include "support/text_tools.h"

using namespace dslaunch;
using namespace dslaunch::storage;
using namespace dslaunch::test;

namespace {

// A folder with one of each kind of place.
class Places {
  public:
    Places() {
        for (const char* path : {"T/config.json",
                                 "T/tokenizer.json",
                                 "T/model.safetensors",
                                 "shape/config.json",
                                 "r/config.json",
                                 "r/model.safetensors",
                                 "r/model.pt",
                                 "r/run.json",
                                 "r/tokenizer.json",
                                 "r/checkpoints/step-2/manifest.json",
                                 "r/checkpoints/step-2/weights.safetensors",
                                 "unsaved/config.json",
                                 "unsaved/checkpoints/step-2/manifest.json",
                                 "gone/config.json",
                                 "gone/metrics.jsonl",
                                 "archive/model.pt",
                                 "archive/checkpoints/step-1/manifest.json",
                                 "ds/global_step10/mp_rank_00_model_states.pt",
                                 "ds/latest",
                                 "cut.partial/layer-00000.safetensors",
                                 "bare/model.safetensors",
                                 "some/notes.md",
                                 "hub/snapshots/abc/config.json",
                                 "hub/snapshots/abc/model.safetensors",
                                 "train.pt",
                                 "rows.jsonl"})
            add(path, "{}");
        add("lora/adapter/adapter_config.json", R"({"base_model_name_or_path": "T"})");
        add("lora/adapter/adapter_model.safetensors", "{}");
        add("lora/run.json", R"({"working_directory": ")" + at("") + R"(", "target": "T"})");
        add("lora/checkpoints/step-3/manifest.json", R"({"base_fingerprint": "ab"})");
        add("lost/adapter/adapter_config.json",
            R"({"base_model_name_or_path": ")" + at("tuned") + R"("})");
        add("tuned-moved/config.json", "{}");
        add("tuned-moved/model.safetensors", "{}");
        add("ds_config.json", R"({"train_batch_size": 8})");
        std::filesystem::create_directory(at("void"));
    }

    [[nodiscard]] std::string at(const std::string& name) const {
        return folder_.path() + "/" + name;
    }
    [[nodiscard]] Place place(const std::string& name) const { return place_at(at(name)); }
    [[nodiscard]] std::string text(const std::string& name, PlaceUse use) const {
        return place_text(place(name), use);
    }

  private:
    void add(const std::string& path, const std::string& content) {
        std::filesystem::create_directories(std::filesystem::path(at(path)).parent_path());
        write_file(at(path), content);
    }

    TemporaryFolder folder_;
};

}  // namespace

TEST_CASE("each kind of place is known by the names in it and beside it") {
    const Places places;
    struct Row {
        const char* name;
        PlaceKind kind;
    };
    for (const Row& row :
         {Row{"T", PlaceKind::kModel},
          Row{"T/", PlaceKind::kModel},
          Row{"r", PlaceKind::kModel},
          Row{"shape", PlaceKind::kConfigOnly},
          Row{"archive", PlaceKind::kArchiveRun},
          Row{"unsaved", PlaceKind::kUnsavedRun},
          Row{"gone", PlaceKind::kEmptyRun},
          Row{"lora", PlaceKind::kAdapter},
          Row{"lora/adapter", PlaceKind::kAdapter},
          Row{"r/checkpoints/step-2", PlaceKind::kCheckpoint},
          Row{"r/best", PlaceKind::kCheckpoint},
          Row{"T/best", PlaceKind::kMissing},
          Row{"r/checkpoints", PlaceKind::kCheckpoints},
          Row{"ds", PlaceKind::kDeepSpeed},
          Row{"ds/global_step10", PlaceKind::kDeepSpeed},
          Row{"hub", PlaceKind::kHubCache},
          Row{"cut.partial", PlaceKind::kPartial},
          Row{"bare", PlaceKind::kWeights},
          Row{"", PlaceKind::kModels},
          Row{"void", PlaceKind::kEmpty},
          Row{"some", PlaceKind::kFolder},
          Row{"T/config.json", PlaceKind::kFileOfModel},
          Row{"T/model.safetensors", PlaceKind::kFileOfModel},
          Row{"r/model.pt", PlaceKind::kFile},
          Row{"lora/adapter/adapter_config.json", PlaceKind::kFileOfAdapter},
          Row{"r/checkpoints/step-2/weights.safetensors", PlaceKind::kFileOfCheckpoint},
          Row{"rows.jsonl", PlaceKind::kFile},
          Row{"none", PlaceKind::kMissing}}) {
        INFO(row.name);
        CHECK(places.place(row.name).kind == row.kind);
    }
    CHECK(places.place("r/checkpoints/step-2").whole == places.at("r"));
    CHECK(places.place("r/best").whole == places.at("r"));
}

TEST_CASE("what is not a model says what it is, and the command that makes a model of it") {
    const Places places;
    const auto says = [&](const std::string& name) { return places.text(name, PlaceUse::kModel); };
    CHECK(says("T/config.json") ==
          "belongs to a model: give the model's folder, " + places.at("T"));
    CHECK(says("r/checkpoints/step-2") == "is a checkpoint of the run " + places.at("r") +
                                              "; to use its weights: dslaunch ckpt export " +
                                              places.at("r/checkpoints/step-2") +
                                              " NEW --format hf, then give NEW");
    CHECK_THAT(
        says("archive/checkpoints"),
        Catch::Contains("dslaunch ckpt export " + places.at("archive/checkpoints") +
                        " NEW.pt --format torchscript --model " + places.at("archive/model.pt")));
    CHECK_THAT(says("unsaved"), Catch::Contains("dslaunch ckpt export " + places.at("unsaved") +
                                                " NEW --format hf"));
    CHECK_THAT(says("gone"), Catch::Contains("a run that has neither weights nor checkpoints"));
    CHECK_THAT(says("ds"),
               Catch::StartsWith("is a DeepSpeed checkpoint; to continue its training: dslaunch "
                                 "ckpt import " +
                                 places.at("ds") +
                                 " NEW, then dslaunch MODEL --data FILE "
                                 "--output NEW --resume"));
    CHECK_THAT(says("cut.partial"), Catch::Contains("run the same command again to finish"));
    CHECK_THAT(says(""),
               Catch::Contains("give one of them: ") && Catch::Contains(places.at("train.pt")) &&
                   Catch::Contains(places.at("T")) && !Catch::Contains(places.at("lora")));
    CHECK_THAT(says("hub"), Catch::Contains("give " + places.at("hub/snapshots/abc")));
    CHECK_THAT(
        says("ds_config.json"),
        Catch::StartsWith("is a ds_config, not a model: dslaunch MODEL --data FILE --config"));
    CHECK(says("void") == "is an empty folder, not a model");
    // The checkpoints of an adapter cannot be exported as a model.
    CHECK_THAT(says("lora/checkpoints/step-3"),
               Catch::Contains("dslaunch model merge " + places.at("T") + " " + places.at("lora") +
                               " -o NEW") &&
                   !Catch::Contains("ckpt export"));
}

TEST_CASE("a path in a command is quoted for a shell where it must be") {
    const TemporaryFolder folder;
    const auto add = [&](const std::string& path, const std::string& content) {
        const std::filesystem::path place = std::filesystem::path(folder.path()) / path;
        std::filesystem::create_directories(place.parent_path());
        write_file(place.string(), content);
    };
    add("my T/config.json", "{}");
    add("my T/model.safetensors", "{}");
    add("lo ra/adapter_config.json",
        R"({"base_model_name_or_path": ")" + folder.path() + R"(/my T"})");
    add("r n/config.json", "{}");
    add("r n/checkpoints/step-2/manifest.json", "{}");
    add("d s/global_step1/mp_rank_00_model_states.pt", "{}");
    add("d s/latest", "{}");
    add("c f.json", R"({"train_batch_size": 8})");
    const auto quoted = [&](const std::string& name) {
        return "'" + folder.path() + "/" + name + "'";
    };
    const auto says = [&](const std::string& name, PlaceUse use) {
        return place_text(place_at(folder.path() + "/" + name), use);
    };
    CHECK_THAT(says("lo ra", PlaceUse::kModel),
               Catch::Contains("dslaunch generate " + quoted("my T") + " --adapter " +
                               quoted("lo ra") + " --prompt TEXT") &&
                   Catch::Contains("dslaunch model merge " + quoted("my T") + " " +
                                   quoted("lo ra") + " -o NEW"));
    CHECK_THAT(says("r n", PlaceUse::kModel),
               Catch::Contains("dslaunch ckpt export " + quoted("r n") + " NEW"));
    CHECK_THAT(says("d s", PlaceUse::kResume),
               Catch::Contains("dslaunch ckpt import " + quoted("d s") + " NEW"));
    CHECK_THAT(says("c f.json", PlaceUse::kModel),
               Catch::EndsWith("--config " + quoted("c f.json")));
    CHECK_THAT(says("my T", PlaceUse::kForeign),
               Catch::Contains("dslaunch " + quoted("my T") + " --data FILE"));
    CHECK_THAT(says("lo ra", PlaceUse::kForeign),
               Catch::EndsWith("dslaunch.lora.init=" + quoted("lo ra")));
    CHECK_THAT(says("r n/checkpoints/step-2", PlaceUse::kResume),
               Catch::EndsWith("use --output " + quoted("r n")));
}

TEST_CASE("an adapter's model is looked for, and never found in another adapter") {
    const Places places;
    const BaseModel base = base_of_adapter(places.at("lora"));
    CHECK(base.path == places.at("T"));
    CHECK(base_of_adapter(places.at("lora/adapter")).path == places.at("T"));
    const BaseModel lost = base_of_adapter(places.at("lost"));
    CHECK(lost.path.empty());
    CHECK(lost.near == places.at("tuned-moved"));
    const std::string text = places.text("lost", PlaceUse::kModel);
    CHECK_THAT(text,
               Catch::Contains("was trained with " + places.at("tuned") + ", which is not there") &&
                   Catch::Contains("dslaunch generate " + places.at("tuned-moved") + " --adapter " +
                                   places.at("lost")));
    CHECK(near_model(places.at("Lora")).empty());
    CHECK(near_model(places.at("t")) == places.at("T"));
    CHECK(near_model(places.at("train")) == places.at("train.pt"));
    CHECK(near_model(places.at("rows")).empty());
    CHECK(near_file(places.at("rows")) == places.at("rows.jsonl"));
}

TEST_CASE("a path that is no adapter, checkpoint or import says what to give instead") {
    const Places places;
    CHECK_THAT(places.text("T", PlaceUse::kAdapter),
               Catch::StartsWith("is a model, not an adapter"));
    CHECK_THAT(places.text("rows.jsonl", PlaceUse::kAdapter),
               Catch::Contains("not an adapter") && !Catch::Contains("is a model"));
    CHECK_THAT(places.text("lora/checkpoints/step-3", PlaceUse::kAdapter),
               Catch::Contains("give the run, " + places.at("lora")));
    CHECK_THAT(places.text("ds", PlaceUse::kResume),
               Catch::Contains("dslaunch ckpt import " + places.at("ds") + " NEW"));
    CHECK_THAT(places.text("r/best", PlaceUse::kResume),
               Catch::Contains("use --output " + places.at("r")));
    CHECK_THAT(places.text("r/checkpoints", PlaceUse::kForeign),
               Catch::Contains("needs no import: dslaunch MODEL --data FILE --resume=" +
                               places.at("r/checkpoints")));
    CHECK_THAT(places.text("train.pt", PlaceUse::kForeign),
               Catch::Contains("trained as it is: dslaunch " + places.at("train.pt")));
    CHECK_THAT(places.text("lora", PlaceUse::kTokenizer),
               Catch::Contains("give the model that it was trained with, T"));
    CHECK_THAT(places.text("r/checkpoints", PlaceUse::kTokenizer),
               Catch::Contains("give the model's folder, " + places.at("r")));
}

TEST_CASE(
    "a command that needs no weights takes a model's config, and no other file of the model") {
    const Places places;
    write_file(places.at("shape/config.json"), R"({"model_type": "llama"})");
    CHECK(model_form_at(places.at("shape/config.json")) == places.at("shape/config.json"));
    CHECK(model_form_at(places.at("shape")) == places.at("shape"));
    CHECK(model_form_at(places.at("unsaved")) == places.at("unsaved"));
    const auto refused = [&](auto function, const std::string& name) {
        return error_of(ExitCode::kInput, [&] { static_cast<void>(function(places.at(name))); });
    };
    CHECK_THAT(refused(model_form_at, "T/tokenizer.json"),
               Catch::EndsWith("give the model's folder, " + places.at("T")));
    CHECK_THAT(refused(model_at, "shape/config.json"),
               Catch::EndsWith("give the model's folder, " + places.at("shape")));
    CHECK_THAT(refused(model_at, "unsaved"), Catch::Contains("dslaunch ckpt export"));
    CHECK_THAT(refused(refuse_part, "r/checkpoints/step-2/weights.safetensors"),
               Catch::Contains("is a checkpoint of the run") || Catch::Contains("of a checkpoint"));
    CHECK(refused([](const std::string& path) { return refuse_part(path), 0; }, "train.pt") ==
          "accepted");
}
