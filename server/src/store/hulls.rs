//! Recorded models, kept by what they are.

use sqlx::Row as _;

use super::pools::{reading, within};
use super::{Store, StoreError, today};

const PUT: &str = "INSERT INTO hull (id, received, content) VALUES ($1, $2, $3) ON CONFLICT (id) DO NOTHING";
const GET: &str = "SELECT content FROM hull WHERE id = $1";

impl Store {
    /// Keeps a hull under the SHA-256 of its bytes; whether it was not there before. `token`: what it came with.
    ///
    /// # Errors
    /// The database fails; nothing is kept then.
    pub async fn put_hull(&self, id: &str, content: &[u8], token: Option<&str>) -> Result<bool, StoreError> {
        let mut tx = self.pools.write().await?;
        let made = within!(&mut tx, c => {
            let made = sqlx::query(PUT).bind(id).bind(today()).bind(content);
            made.execute(c).await.map(|done| done.rows_affected())
        });
        let made = self.noted(made.map_err(StoreError::of))?;
        if let Some(token) = token {
            tx.used(token, &today()).await?;
        }
        tx.commit().await?;
        Ok(made > 0)
    }

    /// The bytes of the hull with this SHA-256.
    ///
    /// # Errors
    /// The database fails.
    pub async fn hull(&self, id: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let found: Result<Option<Vec<u8>>, StoreError> = reading!(&self.pools, pool => {
            let row = sqlx::query(GET).bind(id).fetch_optional(pool).await;
            row.and_then(|row| row.map(|row| row.try_get(0)).transpose()).map_err(StoreError::of)
        });
        self.noted(found)
    }
}
