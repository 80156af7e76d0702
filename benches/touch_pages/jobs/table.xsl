<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
  <xsl:key name="grade" match="item" use="@grade"/>
  <xsl:template match="/">
    <table>
      <xsl:for-each select="//item">
        <xsl:sort select="name"/>
        <tr><td><xsl:value-of select="name"/></td><td><xsl:value-of select="count(key('grade', @grade))"/></td></tr>
      </xsl:for-each>
    </table>
  </xsl:template>
</xsl:stylesheet>
