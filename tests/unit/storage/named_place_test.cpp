// The models, adapters and places that people name on a command line.
#include "storage/huggingface/named_place.h"

#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "base/text.h"
#include "base/text/file_faults.h"
#include "storage/disk/output_place.h"
#include "storage/files/mapped_file.h"
#include "support/catch.h"
#include "support/child.h"
#include "support/temporary_folder.h"
#include "support/text_tools.h"

using namespace dslaunch;
using namespace dslaunch::storage;
using namespace dslaunch::test;

namespace {

// Makes the files PATHS in a folder, each with "{}".
void make(const TemporaryFolder& folder, const std::vector<std::string>& paths) {
    for (const std::string& path : paths) {
        const std::filesystem::path place = std::filesystem::path(folder.path()) / path;
        std::filesystem::create_directories(place.parent_path());
        write_file(place.string(), "{}");
    }
}

template <typename Function>
std::string said(Function&& function) {
    return error_of(ExitCode::kInput, [&] { static_cast<void>(function()); });
}

}  // namespace

TEST_CASE("the folder of a job stands for the model or the adapter that the job made") {
    const TemporaryFolder folder;
    make(folder,
         {"run/model.pt", "run/run.json", "hf/config.json", "hf/model.pt", "hf/model.safetensors",
          "tuned/adapter/adapter_config.json", "peft/adapter_config.json",
          "early/checkpoints/step-1/manifest.json", "empty/x", "train.pt"});
    write_file(folder.path() + "/tuned/adapter/adapter_config.json",
               R"({"base_model_name_or_path": "SmolLM2"})");
    const std::string at = folder.path() + "/";
    CHECK(model_at(at + "run") == at + "run/model.pt");
    CHECK(archive_of_job(at + "run") == at + "run/model.pt");
    // A Hugging Face folder is the model itself, whatever is beside it.
    CHECK(model_at(at + "hf") == at + "hf");
    CHECK_FALSE(archive_of_job(at + "hf"));
    CHECK(model_at(at + "train.pt") == at + "train.pt");
    CHECK(adapter_at(at + "tuned") == at + "tuned/adapter");
    CHECK(adapter_at(at + "tuned/adapter") == at + "tuned/adapter");
    CHECK(adapter_at(at + "peft") == at + "peft");
    CHECK(adapter_at("").empty());
    CHECK_THAT(said([&] { return model_at(at + "tuned"); }),
               Catch::Contains("contains an adapter, not a model") &&
                   Catch::Contains("it was trained with SmolLM2, which is not there") &&
                   Catch::Contains("dslaunch model merge MODEL " + at + "tuned -o NEW"));
    CHECK_THAT(said([&] { return model_at(at + "early"); }),
               Catch::Contains("dslaunch ckpt export " + at + "early NEW"));
    CHECK_THAT(said([&] { return model_at(at + "empty"); }),
               Catch::Contains("is a folder without a config.json"));
    make(folder, {"cache/snapshots/abc/config.json", "hf/tokenizer.json"});
    CHECK_THAT(said([&] { return model_at(at + "cache"); }),
               Catch::Contains("give " + at + "cache/snapshots/abc"));
    CHECK_THAT(said([&] { return tokenizer_folder_at(at + "hf/tokenizer.json"); }),
               Catch::Contains("belongs to a model: give the model's folder, " + at + "hf"));
    CHECK_THAT(said([&] { return tokenizer_folder_at(at + "tuned"); }),
               Catch::Contains("give the model that it was trained with, SmolLM2"));
    CHECK_THAT(said([&] { return adapter_at(at + "hf"); }),
               Catch::Contains("is a model, not an adapter"));
    CHECK_THAT(
        said([&] { return adapter_at(at + "empty"); }),
        Catch::Contains("is a folder, not an adapter: an adapter is a folder with adapter_config"));
    CHECK_THAT(said([&] { return folder_model_at(at + "run", "serve"); }),
               Catch::Contains("`serve` needs a Hugging Face folder") &&
                   Catch::Contains("dslaunch generate " + at +
                                   "run/model.pt --prompt TEXT, or "
                                   "--prompt-ids 5,17,2") &&
                   Catch::Contains("dslaunch ckpt export " + at +
                                   "run NEW --format hf --config-from FOLDER"));
    CHECK_THAT(said([&] { return folder_model_at(at + "train.pt", "eval"); }),
               Catch::Contains("if `dslaunch model import FOLDER` made it, give FOLDER instead"));
    make(folder, {"exported/model.safetensors"});
    CHECK_THAT(said([&] { return model_at(at + "exported"); }),
               Catch::Contains("has weights but no config.json") &&
                   Catch::Contains("--format hf --config-from FOLDER"));
    CHECK(folder_model_at(at + "hf", "serve") == at + "hf");
    CHECK_THAT(said([&] { return tokenizer_folder_at(at + "train.pt"); }),
               Catch::Contains("dslaunch tokens bytes FILE"));
}

TEST_CASE("a name of the hub is known, and told how it is fetched") {
    const TemporaryFolder folder;
    make(folder, {"bin/tool", "Org/model"});
    struct Row {
        const char* path;
        bool is_hub;
    };
    for (const Row& row :
         {Row{"HuggingFaceTB/SmolLM2-135M", true}, Row{"Qwen/Qwen2.5-0.5B", true},
          Row{"google-bert/bert_base.v2", true}, Row{"SmolLM2", false}, Row{"./Org/x", false},
          Row{"/a/b", false}, Row{"a/b/c", false}, Row{"../a", false},
          Row{"models/train.pt", false}, Row{"scripts/run.sh", false}, Row{"bin/tool", false},
          Row{"bin/other", false}, Row{"a b/c", false}, Row{"-a/b", false}}) {
        INFO(row.path);
        CHECK(is_hub_name(row.path, folder.path()) == row.is_hub);
    }
    CHECK(
        said([] { return model_at("HuggingFaceTB/SmolLM2-135M"); }) ==
        "HuggingFaceTB/SmolLM2-135M is not a local folder, and dslaunch does not download models. "
        "Download it: hf download HuggingFaceTB/SmolLM2-135M --local-dir SmolLM2-135M; then give "
        "SmolLM2-135M as the model");
    CHECK_THAT(said([] { return model_at("https://huggingface.co/Org/Name"); }),
               Catch::Contains("hf download Org/Name --local-dir Name"));
    CHECK_THAT(said([] { return model_at("Qwen2.5-0.5B"); }),
               Catch::Contains("hf download ORG/Qwen2.5-0.5B --local-dir Qwen2.5-0.5B"));
    const auto refused = [](const char* word, const char* name) {
        return error_of(ExitCode::kUsage, [&] { refuse_download(word, name); });
    };
    CHECK(
        refused("pull", "Org/Name") ==
        "`pull`: dslaunch does not download models. Download it: hf download Org/Name --local-dir "
        "Name; then give Name as the model");
    for (const auto& [name, fetched] :
         {std::pair{"SmolLM2", "hf download ORG/SmolLM2 --local-dir SmolLM2"},
          std::pair{"https://huggingface.co/Org/Name/", "hf download Org/Name --local-dir Name"},
          std::pair{"", "hf download ORG/NAME --local-dir NAME"},
          std::pair{"--help", "hf download ORG/NAME --local-dir NAME"}})
        CHECK_THAT(refused("download", name), Catch::Contains(fetched));
    CHECK(refused("show", "Org/Name") == "accepted");
    CHECK_THAT(said([&] { return model_at(folder.path() + "/bin/tol"); }),
               Catch::Contains("did you mean `" + folder.path() + "/bin/tool`?"));
}

TEST_CASE("a data set of the hub is known by its name and its address") {
    const TemporaryFolder folder;
    make(folder, {"data/rows"});
    for (const char* named : {"tatsu-lab/alpaca", "datasets/tatsu-lab/alpaca",
                              "https://huggingface.co/datasets/tatsu-lab/alpaca/"}) {
        INFO(named);
        CHECK_THAT(hub_data_text(named, folder.path()),
                   Catch::Contains("`hf download --repo-type dataset tatsu-lab/alpaca "
                                   "--local-dir alpaca`"));
    }
    for (const char* named : {"data/rows", "data/other", "lines.jsonl", "a/lines.jsonl", "./a/b",
                              "https://example.org/a/b", "alpaca", "-"}) {
        INFO(named);
        CHECK(hub_data_text(named, folder.path()).empty());
    }
}

TEST_CASE("a model is not written over the model or adapter that is read") {
    const TemporaryFolder folder;
    make(folder, {"base/model.safetensors", "base/config.json", "run/model.pt", "run/train.pt"});
    std::filesystem::create_symlink(folder.path() + "/base", folder.path() + "/link");
    const auto told = [&](const std::string& out, const std::string& input) {
        return error_of(ExitCode::kInput,
                        [&] { require_not_input(folder.path() + out, folder.path() + input); });
    };
    for (const char* out : {"/base", "/base/", "/link", "/base/../base", "/base/model.safetensors"})
        CHECK_THAT(told(out, "/base"), Catch::Contains("--force does not allow this either"));
    CHECK_THAT(told("/run", "/run/model.pt"), Catch::Contains("/run/model.pt"));
    CHECK_THAT(told("/run/train.pt", "/run/train.pt"), Catch::Contains("the input itself"));
    for (const char* out : {"/none", "/run", "/base/new.pt", "/run/model.pt"})
        CHECK(told(out, "/base") == "accepted");
    CHECK(told("/run", "/run/train.pt") == "accepted");
}

TEST_CASE("what lies at a place is replaced only by force") {
    const TemporaryFolder folder;
    make(folder, {"file", "full/x"});
    std::filesystem::create_directory(folder.path() + "/void");
    for (const char* name : {"/file", "/full"}) {
        CHECK_THAT(said([&] { return require_unused(folder.path() + name, false), 0; }),
                   Catch::Contains("already exists; use --force to replace it"));
        CHECK_NOTHROW(require_unused(folder.path() + name, true));
    }
    for (const char* name : {"/void", "/none", "/none/below"})
        CHECK_NOTHROW(require_unused(folder.path() + name, false));
    for (const bool force : {false, true}) {
        CHECK_THAT(said([&] { return require_unused("/dev/zero", force), 0; }),
                   Catch::Contains("is a device or a pipe"));
        CHECK_THAT(said([&] { return require_unused("~/c", force), 0; }),
                   Catch::Contains("dslaunch does not expand `~`"));
        const std::string none = folder.path() + "/none";
        CHECK(error_of(ExitCode::kDisk, [&] { require_new_file(none + "/a/x.pt", force); }) ==
              none + "/a/x.pt: the folder " + none + "/a does not exist; make it: mkdir -p " +
                  none + "/a");
        CHECK_NOTHROW(require_new_file(none, force));
        CHECK_NOTHROW(require_new_file("new.pt", force));
        for (const char* name : {"/void", "/new/"})
            CHECK_THAT(
                error_of(ExitCode::kUsage, [&] { require_new_file(folder.path() + name, force); }),
                Catch::Contains("is a folder; give the name of a file in it"));
    }
}

TEST_CASE("a path that only a shell can read, or with a blank too many, is told what is meant") {
    const TemporaryFolder folder;
    make(folder, {"T/config.json"});
    const std::string at = folder.path() + "/";
    const auto texts =
        in_child([&] {
            ::setenv("HOME", "/home/me", 1);
            ::unsetenv("SCRATCH");
            return join(std::vector{unexpanded_text("~/tb"), unexpanded_text("~"),
                                    unexpanded_text("$HOME/a b"), unexpanded_text("${HOME}"),
                                    unexpanded_text("$SCRATCH/x"), near_file_text(at + "~/T")},
                        "\n");
        }).text;
    const std::string only = "dslaunch does not expand ";
    const std::string home =
        only +
        "`~`, and a shell expands it only at the start of a word, outside quotes: write /home/me";
    CHECK(texts ==
          home + "/tb\n" + home + "\n" + only +
              "`$HOME`, and a shell expands it only outside quotes: write '/home/me/a b'\n" + only +
              "`${HOME}`, and a shell expands it only outside quotes: write /home/me\n" + only +
              "`$SCRATCH`, and a shell expands it only outside quotes: write the path itself\n; " +
              home + "/T");
    for (const char* plain : {"", "tb", "a~", "~me/x", "a/$HOME", "$", "$5.00/x", "$(pwd)/x"})
        CHECK(unexpanded_text(plain).empty());
    CHECK(near_file_text(at + "T ") == "; did you mean " + at + "T, without a blank at its end?");
    make(folder, {"my model/config.json"});
    const std::vector<std::string> words = {"model", "--data", "x"};
    CHECK(split_name("my", words, folder.path()) == "my model");
    CHECK(split_name("your", words, folder.path()).empty());
    CHECK(split_name("my", std::vector<std::string>{"--data", "model"}, folder.path()).empty());
}

TEST_CASE("an adapter in the folder of a model is named, since only transformers would use it") {
    const TemporaryFolder folder;
    make(folder, {"T/config.json", "T/model.safetensors", "lora/adapter_config.json"});
    const std::string model = folder.path() + "/T";
    CHECK(unused_adapter_text(model).empty());
    CHECK(unused_adapter_text(folder.path() + "/lora").empty());
    make(folder, {"T/adapter_config.json"});
    CHECK(unused_adapter_text(model) == model + " also contains an adapter, which is not used");
}

TEST_CASE("a mistyped path is told the name that it is near to") {
    const TemporaryFolder folder;
    make(folder, {"train.pt", "ds_config.json"});
    const std::string at = folder.path() + "/";
    CHECK(near_file_text(at + "trian.pt") == "; did you mean `" + at + "train.pt`?");
    CHECK(near_file_text(at + "ds_confg.json") == "; did you mean `" + at + "ds_config.json`?");
    CHECK(near_file_text(at + "train.pt").empty());
    // A file with another ending is not meant, unless the endings are all that differs.
    CHECK(near_file_text(at + "train.pn") == "; did you mean `" + at + "train.pt`?");
    CHECK(near_file_text(at + "trian.pn").empty());
    CHECK(near_file_text(at + "other").empty());
    CHECK(near_file_text("/proc/no/such/file").empty());
    std::filesystem::create_directories(at + "models/tiny");
    make(folder, {"models/tiny/config.json"});
    CHECK(near_file_text(at + "modles/tiny/config.jsn") ==
          "; did you mean `" + at + "models/tiny/config.json`?");
    CHECK(near_file_text(at + "model/tiny") == "; did you mean `" + at + "models/tiny`?");
    CHECK(near_file_text(at + "models/tinny/") == "; did you mean `" + at + "models/tiny`?");
    CHECK(near_file_text(at + "model/other").empty());
    // One file of a model that was split does not stand for another.
    make(folder, {"model-00001-of-00002.safetensors"});
    CHECK(near_file_text(at + "model-00002-of-00002.safetensors").empty());
    std::filesystem::create_symlink("gone/train.pt", at + "link.pt");
    CHECK(near_file_text(at + "link.pt") ==
          "; it is a link to gone/train.pt, which does not exist");
    CHECK_THAT(error_of(ExitCode::kInput, [&] { fail_missing_model(at + "link.pt"); }),
               Catch::EndsWith("it is a link to gone/train.pt, which does not exist"));
    CHECK_THAT(error_of(ExitCode::kInput, [&] { MappedFile(at + "trian.pt"); }),
               Catch::EndsWith("; did you mean `" + at + "train.pt`?"));
}
