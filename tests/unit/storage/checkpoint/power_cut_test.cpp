// A power cut at any moment of several saves: the checkpoint that is found is never older than the
// last promised commit. It is whole to the last bit, and new saves can follow.
#include "power_cut.h"

#include <cstdio>

#include "save_tools.h"
#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::storage;
using namespace dslaunch::test;

namespace {

const std::string kPowerCutRoot = "/out/checkpoints";

// A promised save; saves are numbered 1, 2, …, as their ids say.
struct Promise {
    size_t ops_count = 0;  // operations after which the promise holds
    int number = 0;
};

struct Record {
    std::vector<Op> ops;
    std::vector<Promise> promises;
};

// Records the saves of steps 1, 2, 3, 3 again and 4, keeping two.
Record record_saves(bool exchanges, const std::function<bool(const std::string&)>& ignores = {}) {
    MemoryTree tree;
    tree.exchanges = exchanges;
    tree.ignores_sync = ignores;
    Record record;
    CheckpointStore store(tree, kPowerCutRoot, 2);
    int number = 0;
    for (const int64_t step : {1, 2, 3, 3, 4}) {
        save(tree, store, step, fmt::format("{}", ++number));
        record.promises.push_back({tree.ops.size(), number});
    }
    record.ops = std::move(tree.ops);
    return record;
}

int promised(const Record& record, size_t prefix) {
    int number = 0;
    for (const Promise& promise : record.promises)
        if (promise.ops_count <= prefix) number = promise.number;
    return number;
}

std::string look(MemoryTree& tree, int number) {
    CheckpointStore store(tree, kPowerCutRoot, 2);
    int newest = 0;
    for (const StoredCheckpoint& stored : store.list()) {
        if (!stored.is_complete) continue;
        if (const std::string fault = fault_in(tree, stored.folder); !fault.empty()) return fault;
        if (newest == 0) newest = std::stoi(CheckpointReader(tree, stored.folder).checkpoint().id);
    }
    if (newest < number) return fmt::format("save {} is found, {} was promised", newest, number);
    if (number == 0) return "";
    const std::string latest =
        tree.find(kPowerCutRoot + "/latest") < 0 ? "" : tree.data(kPowerCutRoot + "/latest");
    const std::map<int, std::string> names = {
        {1, "step-1\n"}, {2, "step-2\n"}, {3, "step-3\n"}, {4, "step-3\n"}, {5, "step-4\n"}};
    return latest == names.at(number) || latest == names.at(std::min(number + 1, 5))
               ? ""
               : fmt::format("latest says '{}' after save {}", latest, number);
}

std::string go_on(MemoryTree& tree) {
    CheckpointStore store(tree, kPowerCutRoot, 2);
    try {
        const std::string folder = save(tree, store, 9, "99");
        const auto entries = tree.list(kPowerCutRoot);
        for (const FolderEntry& entry : *entries)
            if (entry.name.find(".tmp-") != std::string::npos ||
                entry.name.find(".old-") != std::string::npos)
                return fmt::format("{} is left behind", entry.name);
        return store.list().at(0).folder == folder ? fault_in(tree, folder) : "not the newest";
    } catch (const Error& error) {
        return error.what();
    }
}

// Returns the hash of a state. It also depends on the number of promised saves.
uint64_t hash_of_nodes(const std::vector<Node>& nodes, int promised_number) {
    std::string all = fmt::format("{} ", promised_number);
    const std::function<void(int)> add = [&](int index) {
        const Node& node = nodes[index];
        all += fmt::format("({}{}:", node.data.size(), node.is_folder ? "d" : "f") + node.data;
        for (const auto& [name, child] : node.entries) {
            all += name + "/";
            add(child);
        }
        all += ')';
    };
    add(0);
    return hash_of(all).low;
}

struct Outcome {
    std::set<uint64_t> states;  // hashes of the states, each once
    int64_t bad_count = 0;
    std::string first_bad;
};

// Visits EACH states after every prefix of the record.
void explore(const Record& record, int each, uint64_t seed, Outcome& outcome) {
    const CutRules rules[] = {{0, 512, false},  {100, 512, false}, {50, 512, false},
                              {80, 512, false}, {90, 4096, true},  {85, 512, true},
                              {95, 512, false}, {70, 4096, true}};
    for (size_t prefix = 0; prefix <= record.ops.size(); ++prefix) {
        for (int i = 0; i < each; ++i) {
            PowerCut cut(record.ops, prefix, rules[static_cast<size_t>(i) % std::size(rules)],
                         seed + prefix * 100'003 + static_cast<uint64_t>(i));
            MemoryTree tree;
            tree.nodes = cut.nodes();
            if (!outcome.states.insert(hash_of_nodes(tree.nodes, promised(record, prefix))).second)
                continue;
            std::string fault = look(tree, promised(record, prefix));
            if (fault.empty()) fault = go_on(tree);
            if (fault.empty()) continue;
            if (outcome.bad_count++ == 0)
                outcome.first_bad = fmt::format("after {} operations: {}", prefix, fault);
        }
    }
}

}  // namespace

TEST_CASE("after a power cut the newest checkpoint is whole and not older than promised") {
    Outcome outcome;
    for (const bool exchanges : {true, false}) explore(record_saves(exchanges), 24, 1, outcome);
    INFO(outcome.first_bad);
    CHECK(outcome.bad_count == 0);
    CHECK(outcome.states.size() > 1'000);
}

TEST_CASE("after a power cut in any of 100,000 states all that was promised is there", "[.long]") {
    Outcome outcome;
    for (uint64_t round = 0; round < 40 && outcome.states.size() < 110'000; ++round)
        for (const bool exchanges : {true, false})
            explore(record_saves(exchanges), 240, round * 1'000'000'007, outcome);
    std::printf("crash states: %zu that differ, %lld bad\n", outcome.states.size(),
                static_cast<long long>(outcome.bad_count));
    INFO(outcome.first_bad);
    CHECK(outcome.bad_count == 0);
    CHECK(outcome.states.size() >= 100'000);
}

TEST_CASE("a sync that is left out is found, whichever it is") {
    struct Case {
        const char* name;
        bool exchanges;
        std::function<bool(const std::string&)> ignores;
    };
    const auto ends = [](const std::string& path, std::string_view end) {
        return path.size() >= end.size() && path.ends_with(end);
    };
    const auto holds = [](const std::string& path, const char* part) {
        return path.find(part) != std::string::npos;
    };
    const std::vector<Case> cases = {
        {"weights", true, [&](const std::string& path) { return holds(path, "/weights-"); }},
        {"optimizer", true, [&](const std::string& path) { return holds(path, "/optimizer-"); }},
        {"manifest", true, [&](const std::string& path) { return ends(path, "/manifest.json"); }},
        {"latest", true, [&](const std::string& path) { return holds(path, "/latest.tmp-"); }},
        {"the step's folder", true,
         [&](const std::string& path) {
             return holds(path, "/step-") && path.rfind('/') == kPowerCutRoot.size();
         }},
        {"the root, with exchange", true,
         [&](const std::string& path) { return path == kPowerCutRoot; }},
        {"the root, without", false,
         [&](const std::string& path) { return path == kPowerCutRoot; }},
        {"the root's parent", true, [&](const std::string& path) { return path == "/out"; }},
        {"the parent's parent", true, [&](const std::string& path) { return path == "/"; }}};
    for (const Case& each : cases) {
        Outcome outcome;
        explore(record_saves(each.exchanges, each.ignores), 9, 3, outcome);
        INFO(each.name);
        CHECK(outcome.bad_count > 0);
    }
}
