//! Tools that were registered by a request: rows, so that every process has them and none forgets them.

use crate::connect::Store;
use crate::entity::registered_tool;
use crate::error::StoreError;
use sea_orm::sea_query::OnConflict;
use sea_orm::{EntityTrait, IntoActiveModel, QueryOrder};

impl Store {
    /// By name.
    pub async fn registered_tools(&self) -> Result<Vec<registered_tool::Model>, StoreError> {
        Ok(registered_tool::Entity::find().order_by_asc(registered_tool::Column::Name).all(&self.db).await?)
    }

    /// Whoever comes first has the name: says which definition stands under it then.
    pub async fn register_tool(&self, row: registered_tool::Model) -> Result<registered_tool::Model, StoreError> {
        let name = row.name.clone();
        let taken = OnConflict::column(registered_tool::Column::Name).do_nothing().to_owned();
        let insert = registered_tool::Entity::insert(row.into_active_model()).on_conflict(taken);
        insert.exec_without_returning(&self.db).await?;
        let found = registered_tool::Entity::find_by_id(name).one(&self.db).await?;
        // Removed again this very moment.
        found.ok_or(StoreError::Busy)
    }

    /// False: there was none of this name.
    pub async fn forget_tool(&self, name: &str) -> Result<bool, StoreError> {
        Ok(registered_tool::Entity::delete_by_id(name).exec(&self.db).await?.rows_affected > 0)
    }
}
