mod list;
mod order;
