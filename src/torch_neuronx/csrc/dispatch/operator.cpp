#include "dispatch/operator.h"

#include <ATen/core/function_schema.h>

#include <unordered_set>

#include "errors.h"
#include "gil.h"

namespace neuron::dispatch {
namespace {

std::mutex& registry_mutex() {
  static std::mutex mutex;
  return mutex;
}

std::unordered_map<std::string, std::unique_ptr<Operator>>& registry() {
  static auto* operators = new std::unordered_map<std::string, std::unique_ptr<Operator>>();
  return *operators;
}

std::unordered_set<Operator*>& graphs() {
  static auto* operators = new std::unordered_set<Operator*>();
  return *operators;
}

}  // namespace

Entry::~Entry() {
  release_object(execute);
  release_object(handlers);
}

Operator::Operator(const c10::FunctionSchema& schema) : name(schema.name()) {
  if (!schema.overload_name().empty()) {
    name += "." + schema.overload_name();
  }
  const size_t count = schema.arguments().size();
  operand.assign(count, false);
  unread.assign(count, false);
  for (const c10::Argument& argument : schema.arguments()) {
    written.push_back(argument.alias_info() != nullptr && argument.alias_info()->isWrite());
    defaults.push_back(argument.default_value().value_or(c10::IValue()));
  }
}

std::shared_ptr<const Entry> Operator::find(const Key& key) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = entries_.find(key);
  return found == entries_.end() ? nullptr : found->second;
}

void Operator::remember(const Key& key, std::shared_ptr<const Entry> entry) {
  const std::lock_guard<std::mutex> lock(mutex_);
  entries_[key] = std::move(entry);
}

void Operator::clear() {
  std::unordered_map<Key, std::shared_ptr<const Entry>, KeyHash> dropped;
  const std::lock_guard<std::mutex> lock(mutex_);
  dropped.swap(entries_);
}

Operator& operator_of(const c10::OperatorHandle& handle) {
  const c10::FunctionSchema& schema = handle.schema();
  std::string name = schema.name() + "." + schema.overload_name();
  const std::lock_guard<std::mutex> lock(registry_mutex());
  auto& slot = registry()[name];
  if (!slot) {
    slot = std::make_unique<Operator>(schema);
  }
  return *slot;
}

void enter_graph(Operator& op) {
  const std::lock_guard<std::mutex> lock(registry_mutex());
  graphs().insert(&op);
}

void leave_graph(Operator& op) {
  const std::lock_guard<std::mutex> lock(registry_mutex());
  graphs().erase(&op);
}

void clear_executables() {
  const std::lock_guard<std::mutex> lock(registry_mutex());
  for (auto& [name, op] : registry()) {
    op->clear();
  }
  for (Operator* op : graphs()) {
    op->clear();
  }
}

std::vector<std::pair<std::string, uint64_t>> executed_counts() {
  std::vector<std::pair<std::string, uint64_t>> counts;
  const std::lock_guard<std::mutex> lock(registry_mutex());
  for (const auto& [name, op] : registry()) {
    if (const uint64_t n = op->executed.load()) {
      counts.emplace_back(op->name, n);
    }
  }
  return counts;
}

void clear_executed_counts() {
  const std::lock_guard<std::mutex> lock(registry_mutex());
  for (const auto& [name, op] : registry()) {
    op->executed.store(0);
  }
}

}  // namespace neuron::dispatch
